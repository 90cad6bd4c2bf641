-- Add the versions of canvases. Older code keeps working: it makes no versions. A version is stored when it is
-- replaced, and has only what the next version changed: an older version is read from the present canvas and
-- all versions since. Times are whole microseconds since 1970, UTC.

-- When the spec or an asset was last changed. Null: by an older version.
alter table canvases add column written_at integer;

create table canvas_versions (
  account_id text not null,
  canvas_id text not null,
  version_no integer not null constraint version_no_from_one check (version_no >= 1),
  -- The last revision of the canvas with this content.
  revision integer not null,
  title text not null,
  -- Whether a person had accepted the spec and the page when they were replaced.
  is_accepted integer not null check (is_accepted in (0, 1)),
  -- The hints of its tools, as the canvas had them.
  tool_hints text,
  written_by text,
  written_at integer,
  -- The parts that differ from the version before, as JSON; null for the first version.
  changed text,
  -- The parts that the next version changed.
  next_changed text not null,
  -- Null: the next version has the same spec. The last column, so that a listing does not read it.
  spec text constraint spec_is_json check (spec is null or json_valid(spec)),
  primary key (account_id, canvas_id, version_no),
  foreign key (account_id, canvas_id) references canvases(account_id, canvas_id) on delete cascade
) strict;

-- The assets of a version that the next version changed. Without a blob: the version does not have the asset.
create table canvas_version_assets (
  account_id text not null,
  canvas_id text not null,
  version_no integer not null,
  path text not null,
  blob_key text,
  size integer,
  primary key (account_id, canvas_id, version_no, path),
  foreign key (account_id, canvas_id, version_no)
    references canvas_versions(account_id, canvas_id, version_no) on delete cascade,
  constraint blob_has_size check ((blob_key is null) = (size is null)),
  constraint size_is_counted check (size >= 0)
) strict, without rowid;
-- A blob may be that of several versions and of the canvas, after a version was restored.
create index canvas_version_assets_blob_idx on canvas_version_assets(blob_key) where blob_key is not null;
