-- name: claim_artifacts
-- Create the rows of new artifacts before their blobs are written. Existing rows get a new touched_at, so
-- that no sweep deletes them.
insert into artifacts (account_id, artifact_id, size, media_type, blob_key)
select :account_id::text, new.artifact_id, new.size, new.media_type, new.blob_key
  from unnest(:artifact_ids::text[], :sizes::bigint[], :media_types::text[], :blob_keys::text[])
         as new(artifact_id, size, media_type, blob_key)
 order by new.artifact_id
on conflict (account_id, artifact_id) do update set touched_at = now()
returning account_id, artifact_id, size, media_type, blob_key, is_stored;

-- name: mark_stored
-- Record that the blobs of these artifacts are stored. Returns the updated rows; an artifact that was swept
-- or has another blob now is missing.
with put as (
  select artifacts.account_id, artifacts.artifact_id
    from unnest(:artifact_ids::text[], :blob_keys::text[]) as given(artifact_id, blob_key)
    join artifacts on artifacts.account_id = :account_id and artifacts.artifact_id = given.artifact_id
                  and artifacts.blob_key = given.blob_key
   order by artifacts.artifact_id
     for no key update of artifacts
)
update artifacts set is_stored = true, touched_at = now()
  from put
 where artifacts.account_id = put.account_id and artifacts.artifact_id = put.artifact_id
returning artifacts.artifact_id;
