-- name: find_pruned_runs
-- Return the runs of the next page of references, and whether each has ended, has a pruned log and has
-- references that were not checked since.
select p.run_id, count(*) as refs,
       count(p.mentioned_seq) < count(*) and r.finished_at is not null and r.oldest_seq >= r.last_seq
         as is_unchecked
  from (select run_id, mentioned_seq from artifact_refs
         where run_id is not null and run_id > :after order by run_id limit :limit) p
  join runs r on r.run_id = p.run_id
 group by p.run_id, r.finished_at, r.oldest_seq, r.last_seq
 order by p.run_id;

-- name: release_run_references
-- Delete references of a run that are not kept.
delete from artifact_refs
 where ctid = any(array(select ctid from artifact_refs
                         where run_id = :run_id and not artifact_id = any(:kept::text[]) limit :limit))
returning artifact_id;

-- name: confirm_run_references
-- Mark the references of a run as checked.
update artifact_refs set mentioned_seq = (select last_seq from runs where run_id = :run_id)
 where run_id = :run_id and mentioned_seq is null;

-- name: lock_canvas
-- Lock a canvas until the transaction ends, so that no mention is added to it.
select 1 from canvases where account_id = :account_id and canvas_id = :canvas_id for update;

-- name: canvas_content
-- Return what a canvas mentions besides its log and its records.
select state::text as state, spec::text as spec from canvases
 where account_id = :account_id and canvas_id = :canvas_id;

-- name: release_canvas_references
-- Delete these references of a canvas. Requires the lock of the canvas.
delete from artifact_refs
 where account_id = :account_id and canvas_id = :canvas_id and artifact_id = any(:released::text[]);

-- name: confirm_canvas_references
-- Record that the canvas may mention these artifacts up to the end of its log. Requires the lock of the
-- canvas.
update artifact_refs
   set mentioned_seq = (select last_seq from canvases
                         where account_id = :account_id and canvas_id = :canvas_id)
 where account_id = :account_id and canvas_id = :canvas_id and artifact_id = any(:kept::text[]);
