-- name: get_version
-- Return a version with its content, and the present revision of the canvas, read in one statement so that
-- they are consistent. Each part is that of the first version from this one on which has the part, up to one
-- that is complete (`last_part`), else that of the canvas. With `min`, the other columns are of the same row.
select v.version_no, v.revision, v.title, v.titled_by, v.session_key, v.is_accepted, v.written_by,
       v.written_at, v.changed, v.tool_hints, c.revision as canvas_revision,
       c.written_at as canvas_written_at,
       coalesce((select s.spec from canvas_versions s
                  where s.account_id = c.account_id and s.canvas_id = c.canvas_id
                    and s.version_no >= v.version_no and s.spec is not null
                  order by s.version_no limit 1), c.spec) as spec,
       (select json_group_array(json_array(path, blob_key, size))
          from (select path, blob_key, size
                  from (select path, blob_key, size, min(a.version_no) from canvas_version_assets a
                         where a.account_id = :account_id and a.canvas_id = :canvas_id
                           and a.version_no between :version and coalesce(last_part, a.version_no)
                         group by path)
                 where blob_key is not null
                union all
                select path, blob_key, size from canvas_assets p
                 where p.account_id = :account_id and p.canvas_id = :canvas_id and last_part is null
                   and p.path not in (select a.path from canvas_version_assets a
                                       where a.account_id = :account_id and a.canvas_id = :canvas_id
                                         and a.version_no >= :version)
                 order by path)) as assets
  from canvases c
  join canvas_versions v
    on v.account_id = c.account_id and v.canvas_id = c.canvas_id and v.version_no = :version
  join (select (select s.version_no from canvas_versions s
                 where s.account_id = :account_id and s.canvas_id = :canvas_id and s.is_complete
                   and s.version_no >= :version order by s.version_no limit 1) as last_part) last
 where c.account_id = :account_id and c.canvas_id = :canvas_id and c.deleted_at is null;
