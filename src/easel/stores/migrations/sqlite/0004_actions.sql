-- Add executions of canvas actions, the acceptance of specs, and refresh jobs. Older code keeps working.
-- Times are whole microseconds since 1970, UTC.

-- The revision that last changed the spec.
alter table canvases add column spec_revision integer not null default 1;
-- Whether a person wrote the spec or accepted the spec of an agent.
alter table canvases add column is_accepted integer not null default 1;

-- One execution of an action, which is also its record: actor, call, times and outcome. CV-48
create table canvas_actions (
  account_id text not null,
  canvas_id text not null,
  event_id text not null,
  action_id text not null,
  -- Chosen by the caller: a repeated request has one execution.
  request_id text,
  status text not null constraint action_status_is_known check (status in ('asked', 'running', 'completed', 'failed', 'refused')),
  -- The principal that started it, and the person who confirmed it if that was required.
  actor text not null,
  confirmed_by text,
  tool text,
  -- The resolved call, which a person confirms.
  resolved text,
  -- The result or the error.
  answer text,
  revision integer,
  created_at integer not null,
  started_at integer,
  ended_at integer,
  -- The claim of the instance that runs it.
  owner_id text,
  lease_until integer,
  primary key (account_id, event_id),
  foreign key (account_id, canvas_id) references canvases(account_id, canvas_id) on delete cascade,
  constraint running_means_held check ((owner_id is not null and lease_until is not null and started_at is not null) or status <> 'running'),
  constraint ended_means_over check ((ended_at is not null) = (status in ('completed', 'failed', 'refused')))
) strict, without rowid;
create index canvas_actions_listing_idx on canvas_actions(account_id, canvas_id, event_id desc);
create unique index canvas_actions_request_idx on canvas_actions(account_id, canvas_id, request_id) where request_id is not null;
create index canvas_actions_running_idx on canvas_actions(lease_until) where status = 'running';

-- Refresh jobs, one row per job of a spec; claimed like runs.
create table canvas_refreshes (
  account_id text not null,
  canvas_id text not null,
  refresh_id text not null,
  action_id text not null,
  every_ms integer not null,
  next_at integer not null,
  owner_id text,
  lease_until integer,
  failures integer not null default 0,
  primary key (account_id, canvas_id, refresh_id),
  foreign key (account_id, canvas_id) references canvases(account_id, canvas_id) on delete cascade
) strict;
create index canvas_refreshes_due_idx on canvas_refreshes(next_at);
