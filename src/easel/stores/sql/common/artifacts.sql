-- name: withdraw_artifact
-- Delete the row of an upload whose blob is not stored yet. Returns its blob key, or no row if a sweep
-- deleted the row.
delete from artifacts where account_id = :account_id and artifact_id = :artifact_id and not is_stored
returning blob_key;

-- name: complete_upload
-- Store the row of an uploaded artifact. An existing row gets the blob of this upload if it has no stored
-- blob, or if its blob has the key `missing_key`; otherwise it keeps its own blob.
insert into artifacts (account_id, artifact_id, size, media_type, blob_key, is_stored, touched_at)
values (:account_id, :artifact_id, :size, :media_type, :blob_key, true, now())
on conflict (account_id, artifact_id) do update
   set touched_at = excluded.touched_at,
       blob_key = case when artifacts.is_stored and coalesce(artifacts.blob_key <> :missing_key::text, true)
                       then artifacts.blob_key else excluded.blob_key end,
       is_stored = true
returning account_id, artifact_id, size, media_type, blob_key, is_stored;

-- name: get_artifact
-- Return one artifact of this account, if its blob is stored.
select account_id, artifact_id, size, media_type, blob_key, is_stored
  from artifacts where account_id = :account_id and artifact_id = :artifact_id and is_stored;

-- name: add_references
-- Store references from a run or a canvas to artifacts. No sweep deletes an artifact that has references.
-- Unknown ids are ignored. The row lock waits for a concurrent sweep, so that no reference to a deleted row
-- is stored.
insert into artifact_refs (account_id, artifact_id, run_id, canvas_id)
select account_id, artifact_id, :run_id::text, :canvas_id::text
  from artifacts
 where account_id = :account_id and artifact_id = any(:artifact_ids::text[]) and is_stored
 order by artifact_id
   for key share
on conflict do nothing;

-- name: find_orphans
-- Return the next page of artifacts of all accounts, and whether each is old enough to be swept and has no
-- reference. Nothing is locked. A scalar subquery instead of `not exists`, for which Postgres may read all
-- references.
select a.account_id, a.artifact_id,
       a.touched_at < now() - make_interval(secs => :seconds)
         and (select 1 from artifact_refs r
               where r.account_id = a.account_id
                 and r.artifact_id = a.artifact_id limit 1) is null as is_orphan
  from artifacts a
 where (a.account_id, a.artifact_id) > (:after_account, :after_artifact)
 order by a.account_id, a.artifact_id
 limit :limit;

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
-- Delete those of these artifacts that are still old and have no reference. Returns their blob keys.
delete from artifacts
 where (account_id, artifact_id) in (select orphan->>0, orphan->>1
                                       from json_array_elements(:keys::text::json) as orphan)
   and touched_at < now() - make_interval(secs => :seconds)
   and (select 1 from artifact_refs r
         where r.account_id = artifacts.account_id and r.artifact_id = artifacts.artifact_id limit 1) is null
returning blob_key;

-- name: find_unknown_blobs
-- Return those of these blob keys that were created long ago and belong to no artifact.
select found->>0 as blob_key
  from json_array_elements(:keys::text::json) as found
 where (found->>1)::float8 < extract(epoch from now() - make_interval(secs => :seconds))::float8
   and not exists (select 1 from artifacts where artifacts.blob_key = found->>0);
