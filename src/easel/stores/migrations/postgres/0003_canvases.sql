-- Add the owner session, the assets and the views of canvases. Older code keeps working.

-- Null means the main session of its agent.
alter table canvases add column owner_session_key text;

-- The bytes are blobs, which are never overwritten: every version of an asset has a new key.
create table canvas_assets (
  account_id text not null,
  canvas_id text not null,
  path text not null,
  blob_key text not null unique,
  size bigint not null constraint size_is_counted check (size >= 0),
  primary key (account_id, canvas_id, path),
  foreign key (account_id, canvas_id) references canvases(account_id, canvas_id) on delete cascade
);

-- The views of a canvas. A view is removed with its connection, and expires if the instance of the connection
-- crashes.
create table canvas_views (
  account_id text not null,
  canvas_id text not null,
  view_id text not null,
  client_id text not null,
  connection_id text not null,
  expires_at timestamptz not null,
  primary key (account_id, canvas_id, view_id),
  foreign key (account_id, canvas_id) references canvases(account_id, canvas_id) on delete cascade
);
create index canvas_views_connection_idx on canvas_views(connection_id);
create index canvas_views_expiry_idx on canvas_views(expires_at);
create index canvases_agent_idx on canvases(account_id, agent_id, canvas_id);

-- The last place in the logs of deleted canvases. A new canvas of the same id continues after it, so that an
-- old cursor is never valid in the new log.
create table ended_canvases (
  account_id text not null references accounts(account_id) on delete cascade,
  canvas_id text not null,
  last_seq bigint not null,
  primary key (account_id, canvas_id)
);
