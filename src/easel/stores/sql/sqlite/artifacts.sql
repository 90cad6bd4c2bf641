-- name: claim_artifact
-- Take the row of this content, before its blob is written: a new one, or the one that is there, which is touched so that no sweep takes it meanwhile.
insert into artifacts (user_id, artifact_id, size, media_type, blob_key, created_at, touched_at)
values (:user_id, :artifact_id, :size, :media_type, :blob_key, :now, :now)
on conflict (user_id, artifact_id) do update set touched_at = excluded.touched_at
returning user_id, artifact_id, size, media_type, blob_key, is_stored;

-- name: withdraw_artifact
-- End what was begun under this name and has no blob that is known to be there; the key of its blob, unless it was swept.
delete from artifacts where user_id = :user_id and artifact_id = :artifact_id and not is_stored returning blob_key;

-- name: settle_artifact
-- The blob of an upload is there, whole. It goes to the row of its content: a new one, or one that has none yet, or has lost the one named. Else that row is only touched.
insert into artifacts (user_id, artifact_id, size, media_type, blob_key, is_stored, created_at, touched_at)
values (:user_id, :artifact_id, :size, :media_type, :blob_key, 1, :now, :now)
on conflict (user_id, artifact_id) do update
   set touched_at = excluded.touched_at,
       blob_key = iif(artifacts.is_stored and artifacts.blob_key is not :missing_key, artifacts.blob_key, excluded.blob_key),
       is_stored = 1
returning user_id, artifact_id, size, media_type, blob_key, is_stored;

-- name: mark_stored
-- The blob of this row is there, whole. A row that was swept or got another blob meanwhile gives no answer.
update artifacts set is_stored = 1, touched_at = :now
 where user_id = :user_id and artifact_id = :artifact_id and blob_key = :blob_key
returning artifact_id;

-- name: get_artifact
-- One artifact of this user whose blob is there.
select user_id, artifact_id, size, media_type, blob_key, is_stored
  from artifacts where user_id = :user_id and artifact_id = :artifact_id and is_stored;

-- name: refer_to_artifacts
-- Keep these artifacts for as long as the run or the canvas is there; ids of nothing are passed over.
insert into artifact_refs (user_id, artifact_id, run_id, canvas_id)
select user_id, artifact_id, :run_id, :canvas_id
  from artifacts
 where user_id = :user_id and artifact_id in (select value from json_each(:artifact_ids)) and is_stored
on conflict do nothing;

-- name: page_of_artifacts
-- The next rows of anyone, and which of them nobody has touched for long: the sweep walks over all of them in short steps.
select user_id, artifact_id, touched_at < :before as is_old
  from artifacts
 where (user_id, artifact_id) > (:after_user, :after_artifact)
 order by user_id, artifact_id
 limit :limit;

-- name: sweep_artifact
-- Remove it if it is still old and neither a run nor a canvas refers to it; the key of the blob that it leaves.
delete from artifacts
 where user_id = :user_id and artifact_id = :artifact_id and touched_at < :before
   and not exists (select 1 from artifact_refs r
                    where r.user_id = artifacts.user_id and r.artifact_id = artifacts.artifact_id and r.run_id is not null)
   and not exists (select 1 from artifact_refs r
                    where r.user_id = artifacts.user_id and r.artifact_id = artifacts.artifact_id and r.canvas_id is not null)
returning blob_key;

-- name: find_unknown_blobs
-- Which of these keys, each with the time it was made, are old and belong to no row.
select json_extract(found.value, '$[0]') as blob_key
  from json_each(:keys) as found
 where json_extract(found.value, '$[1]') < :before
   and not exists (select 1 from artifacts where artifacts.blob_key = json_extract(found.value, '$[0]'));
