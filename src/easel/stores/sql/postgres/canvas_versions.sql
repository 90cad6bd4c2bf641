-- name: keep_version
-- Store the present content of a canvas as a version, before it is changed: its spec if the change replaces
-- the spec, and the assets that the change replaces, removes or adds (without a blob); or all of it. Requires
-- the lock of the canvas. Returns the number of the version.
with kept as (
  insert into canvas_versions (account_id, canvas_id, version_no, revision, title, titled_by, session_key,
                               spec, is_complete, is_accepted, tool_hints, written_by, written_at, changed,
                               next_changed)
  select c.account_id, c.canvas_id, coalesce(last.version_no, 0) + 1, c.revision, c.title, c.titled_by,
         coalesce(c.owner_session_key, 'agent:' || c.agent_id || ':' || 'main'),
         case when :has_spec::bool then c.spec end, :is_complete::bool, c.is_accepted, c.tool_hints,
         c.written_by, c.written_at, last.next_changed, :next_changed
    from canvases c
    left join lateral (select version_no, next_changed from canvas_versions v
                        where v.account_id = c.account_id and v.canvas_id = c.canvas_id
                        order by version_no desc limit 1) last on true
   where c.account_id = :account_id and c.canvas_id = :canvas_id
  returning account_id, canvas_id, version_no
), kept_assets as (
  insert into canvas_version_assets (account_id, canvas_id, version_no, path, blob_key, size)
  select kept.account_id, kept.canvas_id, kept.version_no, a.path, a.blob_key, a.size
    from kept, unnest(:paths::text[], :blob_keys::text[], :sizes::bigint[]) as a(path, blob_key, size)
)
select version_no from kept;

-- define: lasting_versions
-- The newest versions by a person, and the newest accepted ones, that a change by another author or without
-- acceptance has replaced: they are stored completely and never pruned. RS-72
(select max(z.version_no) from canvas_versions z
  where z.account_id = :account_id and z.canvas_id = :canvas_id and z.is_complete
  group by z.written_by like 'person %', z.is_accepted)

-- name: prune_versions
-- Delete the versions of a canvas up to this number, except lasting ones. Returns the keys of their blobs,
-- some of which may still be in use. Requires the lock of the canvas.
with pruned_assets as (
  delete from canvas_version_assets
   where account_id = :account_id and canvas_id = :canvas_id and version_no <= :version::bigint
     and version_no not in
  -- include: lasting_versions
  returning blob_key
), pruned as (
  delete from canvas_versions
   where account_id = :account_id and canvas_id = :canvas_id and version_no <= :version::bigint
     and version_no not in
  -- include: lasting_versions
)
select distinct blob_key from pruned_assets where blob_key is not null;

-- name: find_unused_blobs
-- Return those of these blobs that neither a canvas nor a version has.
select distinct found.blob_key
  from unnest(:blob_keys::text[]) as found(blob_key)
 where not exists (select 1 from canvas_assets a where a.blob_key = found.blob_key)
   and not exists (select 1 from canvas_version_assets v
                    where v.blob_key = found.blob_key and v.blob_key is not null);

-- name: current_version
-- Return the present version of a canvas: its number follows that of the last stored version.
select coalesce(last.version_no, 0) + 1 as version_no, c.revision, c.title, c.titled_by,
       coalesce(c.owner_session_key, 'agent:' || c.agent_id || ':' || 'main') as session_key,
       c.is_accepted, c.written_by, c.written_at, last.next_changed as changed
  from canvases c
  left join lateral (select version_no, next_changed from canvas_versions v
                      where v.account_id = c.account_id and v.canvas_id = c.canvas_id
                      order by version_no desc limit 1) last on true
 where c.account_id = :account_id and c.canvas_id = :canvas_id and c.deleted_at is null;

-- name: list_versions
-- Return a page of the versions of a canvas, or of the accepted ones, newest first, without their content.
select version_no, revision, title, titled_by, session_key, is_accepted, written_by, written_at, changed
  from canvas_versions
 where account_id = :account_id and canvas_id = :canvas_id and version_no < :before::bigint
   and (is_accepted or not :only_accepted::bool)
 order by version_no desc limit :limit;

-- name: get_version
-- Return a version with its content, and the present revision of the canvas, read in one statement so that
-- they are consistent. Each part is that of the first version from this one on which has the part, up to one
-- that is complete (`last.part`), else that of the canvas.
select v.version_no, v.revision, v.title, v.titled_by, v.session_key, v.is_accepted, v.written_by,
       v.written_at, v.changed, v.tool_hints, c.revision as canvas_revision,
       c.written_at as canvas_written_at,
       coalesce((select s.spec from canvas_versions s
                  where s.account_id = c.account_id and s.canvas_id = c.canvas_id
                    and s.version_no >= v.version_no and s.spec is not null
                  order by s.version_no limit 1), c.spec)::text as spec,
       (select coalesce(json_agg(json_build_array(path, blob_key, size) order by path collate "C"), '[]')
               ::text
          from (select path, blob_key, size
                  from (select distinct on (path) path, blob_key, size from canvas_version_assets a
                         where a.account_id = c.account_id and a.canvas_id = c.canvas_id
                           and a.version_no between v.version_no and coalesce(last.part, a.version_no)
                         order by path, a.version_no) replaced
                 where blob_key is not null
                union all
                select path, blob_key, size from canvas_assets p
                 where p.account_id = c.account_id and p.canvas_id = c.canvas_id and last.part is null
                   and p.path not in (select a.path from canvas_version_assets a
                                       where a.account_id = c.account_id and a.canvas_id = c.canvas_id
                                         and a.version_no >= v.version_no)) found) as assets
  from canvases c
  join canvas_versions v
    on v.account_id = c.account_id and v.canvas_id = c.canvas_id and v.version_no = :version::bigint
  cross join lateral (select min(s.version_no) as part from canvas_versions s
                       where s.account_id = c.account_id and s.canvas_id = c.canvas_id and s.is_complete
                         and s.version_no >= v.version_no) last
 where c.account_id = :account_id and c.canvas_id = :canvas_id and c.deleted_at is null;
