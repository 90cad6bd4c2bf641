-- name: claim_artifacts
-- Create the rows of new artifacts before their blobs are written. Existing rows get a new touched_at, so
-- that no sweep deletes them.
insert into artifacts (account_id, artifact_id, size, media_type, blob_key, touched_at)
select :account_id, new.value, json_extract(:sizes, '$[' || new.key || ']'),
       json_extract(:media_types, '$[' || new.key || ']'), json_extract(:blob_keys, '$[' || new.key || ']'),
       :now
  from json_each(:artifact_ids) as new where true
on conflict (account_id, artifact_id) do update set touched_at = excluded.touched_at
returning account_id, artifact_id, size, media_type, blob_key, is_stored;

-- name: mark_stored
-- Record that the blobs of these artifacts are stored. Returns the updated rows; an artifact that was swept
-- or has another blob now is missing. A blob key is never used for two artifacts.
update artifacts set is_stored = 1, touched_at = :now
 where account_id = :account_id and artifact_id in (select value from json_each(:artifact_ids))
   and blob_key in (select value from json_each(:blob_keys))
returning artifact_id;
