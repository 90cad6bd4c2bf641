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

-- name: lock_artifacts
-- Lock orphans, so that no reference to them is added during the sweep. Rows that another transaction has
-- locked are skipped.
select artifacts.account_id, artifacts.artifact_id
  from artifacts
  join json_array_elements(:keys::text::json) as orphan
    on artifacts.account_id = orphan->>0 and artifacts.artifact_id = orphan->>1
 order by artifacts.account_id, artifacts.artifact_id
   for update of artifacts skip locked;

-- name: sweep_artifacts
-- Delete the locked artifacts that are still old and have no reference. Returns their blob keys.
delete from artifacts
 using json_array_elements(:keys::text::json) as orphan
 where artifacts.account_id = orphan->>0 and artifacts.artifact_id = orphan->>1
   and artifacts.touched_at < now() - make_interval(secs => :seconds)
   and (select 1 from artifact_refs r
         where r.account_id = artifacts.account_id and r.artifact_id = artifacts.artifact_id limit 1) is null
returning artifacts.blob_key;

-- name: find_unknown_blobs
-- Return those of these blob keys that were created long ago and belong to no artifact.
select found.key as blob_key
  from json_each_text(:keys::text::json) as found
 where to_timestamp(found.value::float8) < now() - make_interval(secs => :seconds)
   and not exists (select 1 from artifacts where artifacts.blob_key = found.key);
