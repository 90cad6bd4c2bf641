-- define: last_version
-- The number of the last stored version of a canvas, 0 if there is none.
coalesce((select max(version_no) from canvas_versions v
           where v.account_id = c.account_id and v.canvas_id = c.canvas_id), 0);

-- define: last_changes
-- The parts that the present content changed, as the last stored version has them.
(select next_changed from canvas_versions v
  where v.account_id = c.account_id and v.canvas_id = c.canvas_id order by version_no desc limit 1);

-- name: keep_version
-- Store the present content of a canvas as a version, before it is changed: its spec only if the change
-- replaces the spec, or if it is stored completely. Requires the lock of the canvas. Returns the number of
-- the version.
insert into canvas_versions (account_id, canvas_id, version_no, revision, title, titled_by, session_key, spec,
                             is_complete, is_accepted, tool_hints, written_by, written_at, changed,
                             next_changed)
select c.account_id, c.canvas_id, 1 +
       -- include: last_version
       , c.revision, c.title, c.titled_by,
       coalesce(c.owner_session_key, 'agent:' || c.agent_id || ':' || 'main'),
       case when :has_spec::bool then c.spec end, :is_complete::bool, c.is_accepted, c.tool_hints,
       c.written_by, c.written_at,
       -- include: last_changes
       , :next_changed
  from canvases c where c.account_id = :account_id and c.canvas_id = :canvas_id
returning version_no;

-- name: keep_version_assets
-- Store the assets of a version that the next version replaces or removes; without a blob, those that it
-- adds.
insert into canvas_version_assets (account_id, canvas_id, version_no, path, blob_key, size)
select :account_id, :canvas_id, :version::bigint, asset->>0, asset->>1, (asset->>2)::bigint
  from json_array_elements(:assets::text::json) as asset;

-- define: lasting_versions
-- The newest versions by a person, and the newest accepted ones, that a change by another author or without
-- acceptance has replaced: they are stored completely and never pruned. RS-72
(select max(z.version_no) from canvas_versions z
  where z.account_id = :account_id and z.canvas_id = :canvas_id and z.is_complete
  group by z.written_by like 'person %', z.is_accepted)

-- name: prune_version_assets
-- Delete the assets of the versions of a canvas up to this number, except of lasting ones. Returns the keys
-- of their blobs, some of which may still be in use.
delete from canvas_version_assets
 where account_id = :account_id and canvas_id = :canvas_id and version_no <= :version::bigint
   and version_no not in
  -- include: lasting_versions
returning blob_key;

-- name: prune_versions
-- Delete the versions of a canvas up to this number, except lasting ones.
delete from canvas_versions
 where account_id = :account_id and canvas_id = :canvas_id and version_no <= :version::bigint
   and version_no not in
  -- include: lasting_versions
;

-- name: find_unused_blobs
-- Return those of these blobs that neither a canvas nor a version has.
select distinct found.blob_key
  from unnest(:blob_keys::text[]) as found(blob_key)
 where not exists (select 1 from canvas_assets a where a.blob_key = found.blob_key)
   and not exists (select 1 from canvas_version_assets v
                    where v.blob_key = found.blob_key and v.blob_key is not null);

-- name: current_version
-- Return the present version of a canvas: its number follows that of the last stored version.
select 1 +
       -- include: last_version
       as version_no, c.revision, c.title, c.titled_by,
       coalesce(c.owner_session_key, 'agent:' || c.agent_id || ':' || 'main') as session_key,
       c.is_accepted, c.written_by, c.written_at,
       -- include: last_changes
       as changed
  from canvases c where c.account_id = :account_id and c.canvas_id = :canvas_id and c.deleted_at is null;

-- name: list_canvas_versions
-- Return a page of the versions of a canvas, or of the accepted ones, newest first, without their content.
select version_no, revision, title, titled_by, session_key, is_accepted, written_by, written_at, changed
  from canvas_versions
 where account_id = :account_id and canvas_id = :canvas_id and version_no < :before::bigint
   and (is_accepted or not :only_accepted::bool)
 order by version_no desc limit :limit;
