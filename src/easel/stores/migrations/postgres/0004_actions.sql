-- Add executions of canvas actions, the acceptance of specs, and refresh jobs. Older code keeps working.

alter table canvases
  -- The revision that last changed the spec.
  add column spec_revision bigint not null default 1,
  -- Whether a person wrote the spec or accepted the spec of an agent.
  add column is_accepted boolean not null default true;

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
  actor json not null,
  confirmed_by text,
  tool text,
  -- The resolved call, which a person confirms. json, not jsonb: it must be returned exactly as it was
  -- written.
  resolved json,
  -- The result or the error.
  answer json,
  revision bigint,
  created_at timestamptz not null default clock_timestamp(),
  started_at timestamptz,
  ended_at timestamptz,
  -- The claim of the instance that runs it.
  owner_id text,
  lease_until timestamptz,
  primary key (account_id, event_id),
  foreign key (account_id, canvas_id) references canvases(account_id, canvas_id) on delete cascade,
  constraint running_means_held check ((owner_id is not null and lease_until is not null and started_at is not null) or status <> 'running'),
  constraint ended_means_over check ((ended_at is not null) = (status in ('completed', 'failed', 'refused')))
);
create index canvas_actions_listing_idx on canvas_actions(account_id, canvas_id, event_id desc);
create unique index canvas_actions_request_idx on canvas_actions(account_id, canvas_id, request_id) where request_id is not null;
create index canvas_actions_running_idx on canvas_actions(lease_until) where status = 'running';

-- Refresh jobs, one row per job of a spec; claimed like runs.
create table canvas_refreshes (
  account_id text not null,
  canvas_id text not null,
  refresh_id text not null,
  action_id text not null,
  every_ms bigint not null,
  next_at timestamptz not null,
  owner_id text,
  lease_until timestamptz,
  failures integer not null default 0,
  primary key (account_id, canvas_id, refresh_id),
  foreign key (account_id, canvas_id) references canvases(account_id, canvas_id) on delete cascade
) with (fillfactor = 70);
create index canvas_refreshes_due_idx on canvas_refreshes(next_at);
