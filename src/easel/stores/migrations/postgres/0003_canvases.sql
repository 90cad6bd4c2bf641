-- The rest of a canvas: whose session it belongs to, its assets, and who looks at it. Only adds, so that code of before goes on working.

-- Null: the main session of its agent.
alter table canvases add column owner_session_key text;

-- The bytes are blobs, which are never written over: a new version of an asset has a new key.
create table canvas_assets (
  user_id text not null,
  canvas_id text not null,
  path text not null,
  blob_key text not null unique,
  size bigint not null constraint size_is_counted check (size >= 0),
  primary key (user_id, canvas_id, path),
  foreign key (user_id, canvas_id) references canvases(user_id, canvas_id) on delete cascade
);

-- Who displays a canvas now. A view goes with its connection; if the instance dies that has the connection, it runs out.
create table canvas_views (
  user_id text not null,
  canvas_id text not null,
  view_id text not null,
  client_id text not null,
  connection_id text not null,
  expires_at timestamptz not null,
  primary key (user_id, canvas_id, view_id),
  foreign key (user_id, canvas_id) references canvases(user_id, canvas_id) on delete cascade
);
create index canvas_views_connection_idx on canvas_views(connection_id);
create index canvas_views_expiry_idx on canvas_views(expires_at);
create index canvases_agent_idx on canvases(user_id, agent_id, canvas_id);

-- Where the logs of deleted canvases ended. A canvas of the same name goes on from there, so that an old cursor is never taken for a new one.
create table ended_canvases (
  user_id text not null references users(user_id) on delete cascade,
  canvas_id text not null,
  last_seq bigint not null,
  primary key (user_id, canvas_id)
);
