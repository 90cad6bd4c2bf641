-- name: claim_artifacts
-- Create the rows of these contents before their blobs are written. Existing rows are touched, so that no
-- sweep deletes them.
insert into artifacts (user_id, artifact_id, size, media_type, blob_key)
select :user_id::text, new.artifact_id, new.size, new.media_type, new.blob_key
  from unnest(:artifact_ids::text[], :sizes::bigint[], :media_types::text[], :blob_keys::text[])
         as new(artifact_id, size, media_type, blob_key)
 order by new.artifact_id
on conflict (user_id, artifact_id) do update set touched_at = now()
returning user_id, artifact_id, size, media_type, blob_key, is_stored;

-- name: withdraw_artifact
-- Delete an upload that has no stored blob yet. Returns its blob key, or no row if it was swept.
delete from artifacts where user_id = :user_id and artifact_id = :artifact_id and not is_stored
returning blob_key;

-- name: complete_upload
-- Attach the stored blob of an upload to the row of its content: a new row, a row without a blob, or a row
-- whose blob has the key `missing_key`. Any other row is only touched.
insert into artifacts (user_id, artifact_id, size, media_type, blob_key, is_stored)
values (:user_id, :artifact_id, :size, :media_type, :blob_key, true)
on conflict (user_id, artifact_id) do update
   set touched_at = now(),
       blob_key = case when artifacts.is_stored and artifacts.blob_key is distinct from :missing_key::text
                       then artifacts.blob_key else excluded.blob_key end,
       is_stored = true
returning user_id, artifact_id, size, media_type, blob_key, is_stored;

-- name: mark_stored
-- Record that these blobs are stored. Rows that were swept or have another blob now are not returned.
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
-- Return one artifact of this user whose blob is stored.
select user_id, artifact_id, size, media_type, blob_key, is_stored
  from artifacts where user_id = :user_id and artifact_id = :artifact_id and is_stored;

-- name: add_references
-- Keep these artifacts as long as the run or the canvas exists. Unknown ids are ignored. The lock waits for a
-- sweep that is deleting the row, and then finds it deleted.
insert into artifact_refs (user_id, artifact_id, run_id, canvas_id)
select user_id, artifact_id, :run_id::text, :canvas_id::text
  from artifacts
 where user_id = :user_id and artifact_id = any(:artifact_ids::text[]) and is_stored
 order by artifact_id
   for key share
on conflict do nothing;

-- name: list_artifacts
-- Return the next rows of all users, and whether each is old enough to sweep. The sweep visits all rows in
-- short steps.
select user_id, artifact_id, touched_at < now() - make_interval(secs => :seconds) as is_old
  from artifacts
 where (user_id, artifact_id) > (:after_user, :after_artifact)
 order by user_id, artifact_id
 limit :limit;

-- name: lock_artifacts
-- Lock the old rows of this page, so that no reference to them is added during the check. Rows in use are
-- skipped.
select artifacts.user_id, artifacts.artifact_id
  from artifacts
  join unnest(:user_ids::text[], :artifact_ids::text[]) as old(user_id, artifact_id)
       using (user_id, artifact_id)
 order by artifacts.user_id, artifacts.artifact_id
   for update of artifacts skip locked;

-- name: sweep_artifacts
-- Delete the artifacts that are still old and that no run or canvas refers to. Returns their blob keys.
delete from artifacts
 using unnest(:user_ids::text[], :artifact_ids::text[]) as old(user_id, artifact_id)
 where artifacts.user_id = old.user_id and artifacts.artifact_id = old.artifact_id
   and artifacts.touched_at < now() - make_interval(secs => :seconds)
   and not exists (select 1 from artifact_refs r
                    where r.user_id = old.user_id and r.artifact_id = old.artifact_id
                      and r.run_id is not null)
   and not exists (select 1 from artifact_refs r
                    where r.user_id = old.user_id and r.artifact_id = old.artifact_id
                      and r.canvas_id is not null)
returning artifacts.blob_key;

-- name: find_unknown_blobs
-- Return which of these keys were created long ago and belong to no row.
select found.blob_key
  from unnest(:blob_keys::text[], :made_at::timestamptz[]) as found(blob_key, made_at)
 where found.made_at < now() - make_interval(secs => :seconds)
   and not exists (select 1 from artifacts where artifacts.blob_key = found.blob_key);
