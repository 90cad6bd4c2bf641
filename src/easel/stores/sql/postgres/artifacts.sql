-- name: claim_artifacts
-- Create the rows of new artifacts before their blobs are written. Existing rows get a new touched_at, so
-- that no sweep deletes them.
insert into artifacts (user_id, artifact_id, size, media_type, blob_key)
select :user_id::text, new.artifact_id, new.size, new.media_type, new.blob_key
  from unnest(:artifact_ids::text[], :sizes::bigint[], :media_types::text[], :blob_keys::text[])
         as new(artifact_id, size, media_type, blob_key)
 order by new.artifact_id
on conflict (user_id, artifact_id) do update set touched_at = now()
returning user_id, artifact_id, size, media_type, blob_key, is_stored;

-- name: withdraw_artifact
-- Delete the row of an upload whose blob is not stored yet. Returns its blob key, or no row if a sweep
-- deleted the row.
delete from artifacts where user_id = :user_id and artifact_id = :artifact_id and not is_stored
returning blob_key;

-- name: complete_upload
-- Store the row of an uploaded artifact. An existing row gets the blob of this upload if it has no stored
-- blob, or if its blob has the key `missing_key`; otherwise it keeps its own blob.
insert into artifacts (user_id, artifact_id, size, media_type, blob_key, is_stored)
values (:user_id, :artifact_id, :size, :media_type, :blob_key, true)
on conflict (user_id, artifact_id) do update
   set touched_at = now(),
       blob_key = case when artifacts.is_stored and artifacts.blob_key is distinct from :missing_key::text
                       then artifacts.blob_key else excluded.blob_key end,
       is_stored = true
returning user_id, artifact_id, size, media_type, blob_key, is_stored;

-- name: mark_stored
-- Record that the blobs of these artifacts are stored. Returns the updated rows; an artifact that was swept
-- or has another blob now is missing.
with put as (
  select artifacts.user_id, artifacts.artifact_id
    from unnest(:artifact_ids::text[], :blob_keys::text[]) as given(artifact_id, blob_key)
    join artifacts on artifacts.user_id = :user_id and artifacts.artifact_id = given.artifact_id
                  and artifacts.blob_key = given.blob_key
   order by artifacts.artifact_id
     for no key update of artifacts
)
update artifacts set is_stored = true, touched_at = now()
  from put
 where artifacts.user_id = put.user_id and artifacts.artifact_id = put.artifact_id
returning artifacts.artifact_id;

-- name: get_artifact
-- Return one artifact of this user, if its blob is stored.
select user_id, artifact_id, size, media_type, blob_key, is_stored
  from artifacts where user_id = :user_id and artifact_id = :artifact_id and is_stored;

-- name: add_references
-- Store references from a run or a canvas to artifacts. No sweep deletes an artifact that has references.
-- Unknown ids are ignored. The row lock waits for a concurrent sweep, so that no reference to a deleted row
-- is stored.
insert into artifact_refs (user_id, artifact_id, run_id, canvas_id)
select user_id, artifact_id, :run_id::text, :canvas_id::text
  from artifacts
 where user_id = :user_id and artifact_id = any(:artifact_ids::text[]) and is_stored
 order by artifact_id
   for key share
on conflict do nothing;

-- name: find_orphans
-- Return the next page of artifacts of all users, and whether each is old enough to be swept and has no
-- reference. Nothing is locked. A scalar subquery instead of `not exists`, for which Postgres may read all
-- references.
select a.user_id, a.artifact_id,
       a.touched_at < now() - make_interval(secs => :seconds)
         and (select 1 from artifact_refs r
               where r.user_id = a.user_id and r.artifact_id = a.artifact_id limit 1) is null as is_orphan
  from artifacts a
 where (a.user_id, a.artifact_id) > (:after_user, :after_artifact)
 order by a.user_id, a.artifact_id
 limit :limit;

-- name: lock_artifacts
-- Lock orphans, so that no reference to them is added during the sweep. Rows that another transaction has
-- locked are skipped.
select artifacts.user_id, artifacts.artifact_id
  from artifacts
  join unnest(:user_ids::text[], :artifact_ids::text[]) as orphan(user_id, artifact_id)
       using (user_id, artifact_id)
 order by artifacts.user_id, artifacts.artifact_id
   for update of artifacts skip locked;

-- name: sweep_artifacts
-- Delete the locked artifacts that are still old and have no reference. Returns their blob keys.
delete from artifacts
 using unnest(:user_ids::text[], :artifact_ids::text[]) as orphan(user_id, artifact_id)
 where artifacts.user_id = orphan.user_id and artifacts.artifact_id = orphan.artifact_id
   and artifacts.touched_at < now() - make_interval(secs => :seconds)
   and (select 1 from artifact_refs r
         where r.user_id = artifacts.user_id and r.artifact_id = artifacts.artifact_id limit 1) is null
returning artifacts.blob_key;

-- name: find_unknown_blobs
-- Return those of these blob keys that were created long ago and belong to no artifact.
select found.blob_key
  from unnest(:blob_keys::text[], :made_at::timestamptz[]) as found(blob_key, made_at)
 where found.made_at < now() - make_interval(secs => :seconds)
   and not exists (select 1 from artifacts where artifacts.blob_key = found.blob_key);
