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

-- name: find_releasable
-- Return the next page of canvases of all accounts, and whether each has a reference whose last mention is
-- before the start of the log and before all records, or is not known. Scalar subqueries instead of `exists`,
-- for which Postgres may read all references.
select c.account_id, c.canvas_id,
       (select 1 from artifact_refs r
         where r.account_id = c.account_id and r.canvas_id = c.canvas_id and r.canvas_id is not null
           and r.mentioned_seq < least(c.oldest_seq, coalesce(c.oldest_record, c.oldest_seq))
         limit 1) is not null
       or (select 1 from artifact_refs r
            where r.account_id = c.account_id and r.canvas_id = c.canvas_id and r.canvas_id is not null
              and r.mentioned_seq is null limit 1) is not null as is_old
  from (select account_id, canvas_id, oldest_seq,
               (select min(a.log_seq) from executions a
                 where a.account_id = p.account_id and a.canvas_id = p.canvas_id) as oldest_record
          from canvases p
         where (account_id, canvas_id) > (:account_id::text, :canvas_id::text)
         order by account_id, canvas_id limit :limit) c
 order by c.account_id, c.canvas_id;

-- name: canvas_references
-- Return references of a canvas whose last mention is before the start of the log and before all records, or
-- is not known.
select * from (
  select artifact_id, mentioned_seq from artifact_refs r
   where r.account_id = :account_id and r.canvas_id = :canvas_id and r.mentioned_seq <
         (select least(c.oldest_seq, coalesce((select min(a.log_seq) from executions a
                                                where a.account_id = c.account_id
                                                  and a.canvas_id = c.canvas_id),
                                              c.oldest_seq))
            from canvases c where c.account_id = :account_id and c.canvas_id = :canvas_id)
   order by r.mentioned_seq limit :limit) as old
union all
select * from (
  select artifact_id, mentioned_seq from artifact_refs r
   where r.account_id = :account_id and r.canvas_id = :canvas_id and r.mentioned_seq is null
   limit :limit) as unknown;

-- name: version_specs
-- Return the specs of versions of a canvas that mention artifacts.
select spec::text as spec from canvas_versions
 where account_id = :account_id and canvas_id = :canvas_id
   and spec is not null and strpos(spec::text, 'art_') > 0;
