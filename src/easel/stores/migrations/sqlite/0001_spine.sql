-- Users, sessions, runs and their logs. Times are whole microseconds since 1970, UTC.

create table accounts (
  account_id text not null primary key,
  name text not null unique,
  created_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer))
) strict;
insert into accounts (account_id, name) values ('owner', 'owner');

create table sessions (
  account_id text not null references accounts(account_id) on delete cascade,
  session_id text not null,
  -- The run whose turn it is.
  active_run_id text,
  created_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
  updated_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
  primary key (account_id, session_id)
) strict;

-- The last numbers given out: which arrival, and which turn. One writer, so one row is enough; no number is ever given twice.
create table run_counters (
  only_row integer not null primary key check (only_row = 1),
  queue_no integer not null default 0,
  turn_no integer not null default 0
) strict;
insert into run_counters (only_row) values (1);

create table runs (
  run_id text not null primary key,
  account_id text not null,
  session_id text not null,
  status text not null,
  input_text text not null,
  created_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
  started_at integer,
  finished_at integer,
  owner_id text,
  lease_until integer,
  cancel_requested_at integer,
  error_message text,
  -- The fence: (owner_id, attempt) is compared by every statement that a worker writes with.
  attempt integer not null default 0,
  max_attempts integer not null default 3,
  -- The log: it holds oldest_seq to last_seq.
  oldest_seq integer not null default 1,
  last_seq integer not null default 0,
  -- The last batch of this attempt and where it ended, so that a repeated one is recognised.
  batch_no integer not null default 0,
  batch_seq integer not null default 0,
  -- The queue: in which order runs arrived, and in which order their session's turn came to them (null: it has not).
  queue_no integer not null,
  turn_no integer,
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
) strict;

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
-- Whose log can still be shortened; rows enter it when they end.
create index runs_prunable_idx on runs(finished_at) where finished_at is not null and oldest_seq < last_seq;
create unique index runs_idempotency_idx on runs(account_id, idempotency_key) where idempotency_key is not null;
-- One active run per session: the turn is held once.
create unique index one_turn_per_session on runs(account_id, session_id) where turn_no is not null and status in ('queued', 'running');

create table run_events (
  run_id text not null references runs(run_id) on delete cascade,
  seq integer not null,
  event_type text not null,
  payload text not null constraint payload_is_json check (json_valid(payload)),
  created_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
  visibility text not null constraint visibility_is_known check (visibility in ('public', 'internal')),
  primary key (run_id, seq)
) strict, without rowid;
create index run_events_created_idx on run_events(run_id, created_at);

-- One row that readiness rewrites, to know that a durable write is possible.
create table probes (only_row integer not null primary key check (only_row = 1), probed_at integer not null) strict;
