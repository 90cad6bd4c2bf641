-- Users, sessions, runs and their logs.

create table accounts (
  account_id text primary key,
  name text not null unique,
  created_at timestamptz not null default now()
);
insert into accounts (account_id, name) values ('owner', 'owner');

create table sessions (
  account_id text not null references accounts(account_id) on delete cascade,
  session_id text not null,
  -- The run whose turn it is. Kept on the row that enqueue and finish both lock, so that one of them always sees the other.
  active_run_id text,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (account_id, session_id)
) with (fillfactor = 70);

create sequence run_turns;

create table runs (
  run_id text primary key,
  account_id text not null,
  session_id text not null,
  status text not null,
  input_text text not null,
  created_at timestamptz not null default now(),
  started_at timestamptz,
  finished_at timestamptz,
  owner_id text,
  lease_until timestamptz,
  cancel_requested_at timestamptz,
  error_message text,
  -- The fence: (owner_id, attempt) is compared by every statement that a worker writes with.
  attempt integer not null default 0,
  max_attempts integer not null default 3,
  -- The log: it holds oldest_seq to last_seq.
  oldest_seq bigint not null default 1,
  last_seq bigint not null default 0,
  -- The last batch of this attempt and where it ended, so that a repeated one is recognised.
  batch_no integer not null default 0,
  batch_seq bigint not null default 0,
  -- The queue: in which order runs arrived, and in which order their session's turn came to them (null: it has not).
  queue_no bigint generated always as identity,
  turn_no bigint,
  idempotency_key text,
  request_digest text,
  foreign key (account_id, session_id) references sessions(account_id, session_id) on delete cascade,
  -- A run is always in one of five states.
  constraint status_is_known check (status in ('queued', 'running', 'completed', 'failed', 'cancelled')),
  -- A run has ended exactly when it says so.
  constraint finished_means_terminal check ((finished_at is not null) = (status in ('completed', 'failed', 'cancelled'))),
  -- A run is held by someone, until some time, exactly while it is running.
  constraint running_means_held check ((lease_until is not null and owner_id is not null and started_at is not null) or status <> 'running'),
  -- Only a failure has a reason.
  constraint failed_means_reason check ((error_message is not null) = (status = 'failed')),
  -- Nobody works on a run whose turn has not come.
  constraint running_means_turn check (turn_no is not null or status in ('queued', 'cancelled')),
  constraint seq_in_order check (oldest_seq >= 1 and last_seq >= 0 and oldest_seq <= last_seq + 1)
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

create index runs_status_created_idx on runs(status, created_at);
create index runs_owner_idx on runs(owner_id);
-- What can be claimed, in the order of claiming; rows leave it when they are claimed.
create index runs_claimable_idx on runs(turn_no) where status = 'queued' and turn_no is not null;
-- What waits behind its session's active run.
create index runs_waiting_idx on runs(account_id, session_id, queue_no) where status = 'queued' and turn_no is null;
-- What is held: few rows. lease_until is left out on purpose, so that a renewal touches no index.
create index runs_held_idx on runs(run_id) where status = 'running';
create index runs_listing_idx on runs(account_id, queue_no desc);
create index runs_session_idx on runs(account_id, session_id, queue_no desc);
create unique index runs_idempotency_idx on runs(account_id, idempotency_key) where idempotency_key is not null;
-- One active run per session: the turn is held once.
create unique index one_turn_per_session on runs(account_id, session_id) where turn_no is not null and status in ('queued', 'running');

create table run_events (
  run_id text not null references runs(run_id) on delete cascade,
  seq bigint not null,
  event_type text not null,
  payload jsonb not null,
  created_at timestamptz not null default now(),
  visibility text not null constraint visibility_is_known check (visibility in ('public', 'internal')),
  primary key (run_id, seq)
) with (autovacuum_vacuum_insert_scale_factor = 0.1);
create index run_events_created_idx on run_events(run_id, created_at);

-- One row that readiness rewrites, to know that a durable write is possible.
create table probes (only_row boolean primary key default true check (only_row), probed_at timestamptz not null);
