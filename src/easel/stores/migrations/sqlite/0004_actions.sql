-- Actions of canvases: every execution from the press to its end, whose spec a person stands for, and what runs by itself.
-- Only adds, so that code of before goes on working. Times are whole microseconds since 1970, UTC.

-- At which revision the spec was stored last.
alter table canvases add column spec_revision integer not null default 1;
-- Whether a person wrote the spec as it is, or accepted what an agent wrote.
alter table canvases add column is_accepted integer not null default 1;

-- One execution of an action. It is the record of it, too: who, what, when and how it went. CV-48
create table canvas_actions (
  user_id text not null,
  canvas_id text not null,
  event_id text not null,
  action_id text not null,
  -- What the caller named it by, so that the same press twice is one execution.
  request_id text,
  status text not null constraint action_status_is_known check (status in ('asked', 'running', 'completed', 'failed', 'refused')),
  -- Who triggered it, and who agreed to it where a person had to.
  actor text not null,
  confirmed_by text,
  tool text,
  -- What exactly runs, resolved: the call that a person agrees to.
  resolved text,
  -- Its result or its error.
  answer text,
  revision integer,
  created_at integer not null,
  started_at integer,
  ended_at integer,
  -- The instance that runs it, which is believed to be alive for so long.
  owner_id text,
  lease_until integer,
  primary key (user_id, event_id),
  foreign key (user_id, canvas_id) references canvases(user_id, canvas_id) on delete cascade,
  constraint running_means_held check ((owner_id is not null and lease_until is not null and started_at is not null) or status <> 'running'),
  constraint ended_means_over check ((ended_at is not null) = (status in ('completed', 'failed', 'refused')))
) strict, without rowid;
create index canvas_actions_listing_idx on canvas_actions(user_id, canvas_id, event_id desc);
create unique index canvas_actions_request_idx on canvas_actions(user_id, canvas_id, request_id) where request_id is not null;
create index canvas_actions_running_idx on canvas_actions(lease_until) where status = 'running';

-- What runs by itself, one row a job of a spec; claimed as runs are.
create table canvas_refreshes (
  user_id text not null,
  canvas_id text not null,
  refresh_id text not null,
  action_id text not null,
  every_ms integer not null,
  next_at integer not null,
  owner_id text,
  lease_until integer,
  failures integer not null default 0,
  primary key (user_id, canvas_id, refresh_id),
  foreign key (user_id, canvas_id) references canvases(user_id, canvas_id) on delete cascade
) strict;
create index canvas_refreshes_due_idx on canvas_refreshes(next_at);
