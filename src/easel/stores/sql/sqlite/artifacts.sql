-- name: claim_artifact
-- Create the row of a new artifact before its blob is written. An existing row gets a new touched_at, so that
-- no sweep deletes it.
insert into artifacts (user_id, artifact_id, size, media_type, blob_key, created_at, touched_at)
values (:user_id, :artifact_id, :size, :media_type, :blob_key, :now, :now)
on conflict (user_id, artifact_id) do update set touched_at = excluded.touched_at
returning user_id, artifact_id, size, media_type, blob_key, is_stored;

-- name: withdraw_artifact
-- Delete the row of an upload whose blob is not stored yet. Returns its blob key, or no row if a sweep
-- deleted the row.
delete from artifacts where user_id = :user_id and artifact_id = :artifact_id and not is_stored
returning blob_key;

-- name: complete_upload
-- Store the row of an uploaded artifact. An existing row gets the blob of this upload if it has no stored
-- blob, or if its blob has the key `missing_key`; otherwise it keeps its own blob.
insert into artifacts (user_id, artifact_id, size, media_type, blob_key, is_stored, created_at, touched_at)
values (:user_id, :artifact_id, :size, :media_type, :blob_key, 1, :now, :now)
on conflict (user_id, artifact_id) do update
   set touched_at = excluded.touched_at,
       blob_key = iif(artifacts.is_stored and artifacts.blob_key is not :missing_key, artifacts.blob_key,
                      excluded.blob_key),
       is_stored = 1
returning user_id, artifact_id, size, media_type, blob_key, is_stored;

-- name: mark_stored
-- Record that the blob of an artifact is stored. Returns no row if the artifact was swept or has another blob
-- now.
update artifacts set is_stored = 1, touched_at = :now
 where user_id = :user_id and artifact_id = :artifact_id and blob_key = :blob_key
returning artifact_id;

-- name: get_artifact
-- Return one artifact of this user, if its blob is stored.
select user_id, artifact_id, size, media_type, blob_key, is_stored
  from artifacts where user_id = :user_id and artifact_id = :artifact_id and is_stored;

-- name: add_references
-- Store references from a run or a canvas to artifacts. No sweep deletes an artifact that has references.
-- Unknown ids are ignored.
insert into artifact_refs (user_id, artifact_id, run_id, canvas_id)
select user_id, artifact_id, :run_id, :canvas_id
  from artifacts
 where user_id = :user_id and artifact_id in (select value from json_each(:artifact_ids)) and is_stored
on conflict do nothing;

-- name: find_orphans
-- Return the next page of artifacts of all users, and whether each is old enough to be swept and has no
-- reference.
select a.user_id, a.artifact_id,
       a.touched_at < :before
         and not exists (select 1 from artifact_refs r
                          where r.user_id = a.user_id and r.artifact_id = a.artifact_id) as is_orphan
  from artifacts a
 where (a.user_id, a.artifact_id) > (:after_user, :after_artifact)
 order by a.user_id, a.artifact_id
 limit :limit;

-- name: sweep_artifact
-- Delete an artifact if it is still old and has no reference. Returns its blob key.
delete from artifacts
 where user_id = :user_id and artifact_id = :artifact_id and touched_at < :before
   and not exists (select 1 from artifact_refs r
                    where r.user_id = artifacts.user_id and r.artifact_id = artifacts.artifact_id)
returning blob_key;

-- name: find_unknown_blobs
-- Return those of these blob keys that were created long ago and belong to no artifact.
select json_extract(found.value, '$[0]') as blob_key
  from json_each(:keys) as found
 where json_extract(found.value, '$[1]') < :before
   and not exists (select 1 from artifacts where artifacts.blob_key = json_extract(found.value, '$[0]'));
