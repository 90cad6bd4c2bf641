-- Add threads and messages, boards, artifacts, canvases and the audit chain. Older code keeps working.

alter table sessions
  add column title text,
  -- The thread: narrative events and user messages from oldest_thread_seq to last_thread_seq, numbered under
  -- the lock of this row.
  add column oldest_thread_seq bigint not null default 1,
  add column last_thread_seq bigint not null default 0,
  -- Set by user messages only: it is indexed, and the appends of workers must not write indexes.
  add column last_message_at timestamptz not null default now();
update sessions set last_message_at = updated_at;
create index sessions_listing_idx on sessions(account_id, last_message_at desc, session_id desc);

-- The input of a run that is too large for a table; `input_text` is then only its beginning.
alter table runs add column input_artifact text;

-- The place of a narrative event in its session's thread; null for all other events.
alter table run_events
  add column account_id text,
  add column session_id text,
  add column thread_seq bigint;
create unique index run_events_thread_idx on run_events(account_id, session_id, thread_seq) where thread_seq is not null;

create table messages (
  account_id text not null,
  session_id text not null,
  thread_seq bigint not null,
  message_id text not null,
  run_id text not null,
  role text not null constraint role_is_known check (role in ('user', 'assistant')),
  -- A string, or the marker of a string that was offloaded to an artifact.
  content jsonb not null,
  -- The final status of the run, for assistant messages.
  status text,
  error_message text,
  -- The event, if it is in the thread only: a user message, or the end of a run that never started.
  payload jsonb,
  created_at timestamptz not null default now(),
  -- The only index: every run writes two messages. Messages are deleted with their session.
  primary key (account_id, session_id, thread_seq),
  foreign key (account_id, session_id) references sessions(account_id, session_id) on delete cascade,
  constraint user_means_event check (role <> 'user' or payload is not null)
);

-- The last place in the threads of deleted sessions. A new session of the same id continues after it, so that
-- an old cursor is never valid in the new thread.
create table ended_threads (
  account_id text not null references accounts(account_id) on delete cascade,
  session_id text not null,
  last_thread_seq bigint not null,
  primary key (account_id, session_id)
);

create table boards (
  run_id text not null references runs(run_id) on delete cascade,
  account_id text not null references accounts(account_id) on delete cascade,
  board text not null constraint board_is_known check (board in ('whiteboard', 'blackboard')),
  -- `global` for the whiteboard, which belongs to the whole run.
  edge_id text not null,
  key text not null,
  -- json, not jsonb: a value is returned exactly as it was written.
  value json not null,
  -- Bytes of the value: the boards of a run have a size limit.
  size bigint not null,
  version bigint not null constraint version_from_one check (version >= 1),
  agent_id text not null,
  node_id text not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (run_id, board, edge_id, key),
  constraint whiteboard_is_global check ((board = 'whiteboard') = (edge_id = 'global'))
);

create table canvases (
  account_id text not null references accounts(account_id) on delete cascade,
  canvas_id text not null,
  agent_id text not null,
  title text not null,
  spec jsonb not null,
  state jsonb not null,
  revision bigint not null default 1,
  -- The log has the events from oldest_seq to last_seq.
  oldest_seq bigint not null default 1,
  last_seq bigint not null default 0,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (account_id, canvas_id)
) with (fillfactor = 70);

create table canvas_events (
  account_id text not null,
  canvas_id text not null,
  seq bigint not null,
  event_type text not null,
  visibility text not null constraint visibility_is_known check (visibility in ('public', 'internal')),
  payload jsonb not null,
  created_at timestamptz not null default now(),
  primary key (account_id, canvas_id, seq),
  foreign key (account_id, canvas_id) references canvases(account_id, canvas_id) on delete cascade
);

-- Bytes stored outside the logs. The id is the digest of the bytes. Every row has a new blob key, so that
-- sweeping the blob of a deleted row never deletes the blob of a new one.
create table artifacts (
  account_id text not null references accounts(account_id) on delete cascade,
  artifact_id text not null,
  size bigint not null,
  media_type text not null,
  blob_key text not null unique,
  -- Whether the blob is completely stored.
  is_stored boolean not null default false,
  created_at timestamptz not null default now(),
  -- The last time that a caller was about to refer to it; the sweep skips recent ones.
  touched_at timestamptz not null default now(),
  primary key (account_id, artifact_id)
);

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
);
create unique index artifact_refs_run_idx on artifact_refs(account_id, artifact_id, run_id) where run_id is not null;
create unique index artifact_refs_canvas_idx on artifact_refs(account_id, artifact_id, canvas_id) where canvas_id is not null;
create index artifact_refs_of_run_idx on artifact_refs(run_id) where run_id is not null;
create index artifact_refs_of_canvas_idx on artifact_refs(account_id, canvas_id) where canvas_id is not null;

-- The audit chain: the hash of each record covers the record before, so that edits, removals and reordering
-- are detected.
create table audit (
  seq bigint primary key,
  account_id text not null,
  at timestamptz not null,
  storage_class text not null constraint class_is_known check (storage_class in ('ops', 'audit')),
  action text not null,
  -- The exact text that is hashed.
  record text not null,
  hash text not null
);
create index audit_action_idx on audit(action, seq);
create index audit_account_idx on audit(account_id, seq);
-- The end of the chain. Its lock orders the records.
create table audit_head (only_row boolean primary key default true check (only_row), last_seq bigint not null, last_hash text not null);
insert into audit_head (last_seq, last_hash) values (0, '');
