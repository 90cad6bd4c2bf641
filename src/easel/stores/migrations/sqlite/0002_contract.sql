-- Add threads and messages, boards, artifacts, canvases and the audit chain. Older code keeps working.
-- Times are whole microseconds since 1970, UTC.

alter table sessions add column title text;
-- The thread: narrative events and user messages from oldest_thread_seq to last_thread_seq.
alter table sessions add column oldest_thread_seq integer not null default 1;
alter table sessions add column last_thread_seq integer not null default 0;
-- Set by user messages only.
alter table sessions add column last_message_at integer not null default 0;
update sessions set last_message_at = updated_at;
create index sessions_listing_idx on sessions(account_id, last_message_at desc, session_id desc);

-- The input of a run that is too large for a table; `input_text` is then only its beginning.
alter table runs add column input_artifact text;

-- The place of a narrative event in its session's thread; null for all other events.
alter table run_events add column account_id text;
alter table run_events add column session_id text;
alter table run_events add column thread_seq integer;
create unique index run_events_thread_idx on run_events(account_id, session_id, thread_seq) where thread_seq is not null;

create table messages (
  account_id text not null,
  session_id text not null,
  thread_seq integer not null,
  message_id text not null,
  run_id text not null,
  role text not null constraint role_is_known check (role in ('user', 'assistant')),
  -- A string, or the marker of a string that was offloaded to an artifact.
  content text not null constraint content_is_json check (json_valid(content)),
  -- The final status of the run, for assistant messages.
  status text,
  error_message text,
  -- The event, if it is in the thread only: a user message, or the end of a run that never started.
  payload text constraint payload_is_json check (payload is null or json_valid(payload)),
  created_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
  -- The only index: every run writes two messages. Messages are deleted with their session.
  primary key (account_id, session_id, thread_seq),
  foreign key (account_id, session_id) references sessions(account_id, session_id) on delete cascade,
  constraint user_means_event check (role <> 'user' or payload is not null)
) strict;

-- The last place in the threads of deleted sessions. A new session of the same id continues after it, so that
-- an old cursor is never valid in the new thread.
create table ended_threads (
  account_id text not null references accounts(account_id) on delete cascade,
  session_id text not null,
  last_thread_seq integer not null,
  primary key (account_id, session_id)
) strict;

create table boards (
  run_id text not null references runs(run_id) on delete cascade,
  account_id text not null references accounts(account_id) on delete cascade,
  board text not null constraint board_is_known check (board in ('whiteboard', 'blackboard')),
  -- `global` for the whiteboard, which belongs to the whole run.
  edge_id text not null,
  key text not null,
  value text not null constraint value_is_json check (json_valid(value)),
  -- Bytes of the value: the boards of a run have a size limit.
  size integer not null,
  version integer not null constraint version_from_one check (version >= 1),
  agent_id text not null,
  node_id text not null,
  created_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
  updated_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
  primary key (run_id, board, edge_id, key),
  constraint whiteboard_is_global check ((board = 'whiteboard') = (edge_id = 'global'))
) strict;

create table canvases (
  account_id text not null references accounts(account_id) on delete cascade,
  canvas_id text not null,
  agent_id text not null,
  title text not null,
  spec text not null constraint spec_is_json check (json_valid(spec)),
  state text not null constraint state_is_json check (json_valid(state)),
  revision integer not null default 1,
  -- The log has the events from oldest_seq to last_seq.
  oldest_seq integer not null default 1,
  last_seq integer not null default 0,
  created_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
  updated_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
  primary key (account_id, canvas_id)
) strict;

create table canvas_events (
  account_id text not null,
  canvas_id text not null,
  seq integer not null,
  event_type text not null,
  visibility text not null constraint visibility_is_known check (visibility in ('public', 'internal')),
  payload text not null constraint payload_is_json check (json_valid(payload)),
  created_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
  primary key (account_id, canvas_id, seq),
  foreign key (account_id, canvas_id) references canvases(account_id, canvas_id) on delete cascade
) strict, without rowid;

-- Bytes stored outside the logs. The id is the digest of the bytes. Every row has a new blob key, so that
-- sweeping the blob of a deleted row never deletes the blob of a new one.
create table artifacts (
  account_id text not null references accounts(account_id) on delete cascade,
  artifact_id text not null,
  size integer not null,
  media_type text not null,
  blob_key text not null unique,
  -- Whether the blob is completely stored.
  is_stored integer not null default 0 check (is_stored in (0, 1)),
  created_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
  -- The last time that a caller was about to refer to it; the sweep skips recent ones.
  touched_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
  primary key (account_id, artifact_id)
) strict;

-- References to an artifact, each from a run (its events, messages, boards) or a canvas. A referenced
-- artifact is kept.
create table artifact_refs (
  account_id text not null,
  artifact_id text not null,
  run_id text references runs(run_id) on delete cascade,
  canvas_id text,
  foreign key (account_id, artifact_id) references artifacts(account_id, artifact_id),
  foreign key (account_id, canvas_id) references canvases(account_id, canvas_id) on delete cascade,
  constraint one_holder check ((run_id is null) <> (canvas_id is null))
) strict;
create unique index artifact_refs_run_idx on artifact_refs(account_id, artifact_id, run_id) where run_id is not null;
create unique index artifact_refs_canvas_idx on artifact_refs(account_id, artifact_id, canvas_id) where canvas_id is not null;
create index artifact_refs_of_run_idx on artifact_refs(run_id) where run_id is not null;
create index artifact_refs_of_canvas_idx on artifact_refs(account_id, canvas_id) where canvas_id is not null;

-- The audit chain: the hash of each record covers the record before, so that edits, removals and reordering
-- are detected.
create table audit (
  seq integer not null primary key,
  account_id text not null,
  at integer not null,
  storage_class text not null constraint class_is_known check (storage_class in ('ops', 'audit')),
  action text not null,
  -- The exact text that is hashed.
  record text not null,
  hash text not null
) strict;
create index audit_action_idx on audit(action, seq);
create index audit_account_idx on audit(account_id, seq);
-- The end of the chain. Its lock orders the records.
create table audit_head (only_row integer not null primary key default 1 check (only_row = 1), last_seq integer not null, last_hash text not null) strict;
insert into audit_head (last_seq, last_hash) values (0, '');
