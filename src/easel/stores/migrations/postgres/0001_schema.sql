-- The schema. Until the first public release it is edited here; a database that has another version of this
-- file is refused.

-- Accounts own rows: `account_id` in the other tables. An account is a person or a team, and its id is its
-- name, which is never changed or given again. RS-76
create table accounts (
  account_id text primary key
    constraint account_id_is_a_name check (account_id ~ '^[a-z0-9-]{1,63}$'),
  kind text not null default 'person' constraint account_kind_is_known check (kind in ('person', 'team')),
  created_at timestamptz not null default now(),
  disabled_at timestamptz,
  -- Set when the account is deleted: its rows and blobs are being purged.
  deleted_at timestamptz,
  constraint deleted_means_disabled check (deleted_at is null or disabled_at is not null)
);
-- The names of accounts that were purged.
create table ended_accounts (account_id text primary key, ended_at timestamptz not null default now());
-- The accounts of persons, who sign in. The first one is the owner of the server.
create table people (
  user_id text primary key references accounts(account_id) on delete cascade,
  is_operator boolean not null default false,
  display_name text,
  -- argon2id; null: the person signs in by a token or by OpenID Connect.
  password_hash text
);
create index people_operators_idx on people(user_id) where is_operator;
-- The members of teams. A person is admin of their own account, without a row.
create table team_members (
  account_id text not null references accounts(account_id) on delete cascade,
  user_id text not null references people(user_id) on delete cascade,
  role text not null constraint role_is_known check (role in ('viewer', 'member', 'admin')),
  -- Whether the claim of a sign-in by OpenID Connect gave the membership; the next sign-in may take it then.
  from_claim boolean not null default false,
  created_at timestamptz not null default now(),
  primary key (account_id, user_id)
);
create index team_members_user_idx on team_members(user_id);
-- Persons who have left an account, or were disabled: their runs and questions there are still to be ended.
create table departures (
  account_id text not null references accounts(account_id) on delete cascade,
  user_id text not null,
  left_at timestamptz not null default clock_timestamp(),
  primary key (account_id, user_id)
);
create index departures_left_idx on departures(left_at);
-- The identities of persons at providers of OpenID Connect. A deleted person's identity stays: it gives no
-- new account without an invitation.
create table identities (
  issuer text not null, subject text not null,
  user_id text not null,
  created_at timestamptz not null default now(),
  primary key (issuer, subject)
);
create index identities_user_idx on identities(user_id);
-- Links by which persons set their first password or connect an identity, once. Only the digest is stored.
create table invitations (
  digest text primary key,
  user_id text not null references people(user_id) on delete cascade,
  created_at timestamptz not null default clock_timestamp(),
  expires_at timestamptz not null
);
create index invitations_user_idx on invitations(user_id);
create index accounts_deleted_idx on accounts(deleted_at) where deleted_at is not null;
insert into accounts (account_id) values ('owner');
insert into people (user_id, is_operator) values ('owner', true);

-- The log of an account: its sessions, created, renamed and removed. Only the newest events are kept.
create table account_events (
  account_id text not null references accounts(account_id) on delete cascade,
  seq bigint not null, event_type text not null,
  visibility text not null constraint visibility_is_known check (visibility in ('public', 'internal')),
  payload jsonb not null, created_at timestamptz not null default now(),
  primary key (account_id, seq)
);

-- Tokens that authenticate a principal. Only the digest of a token is stored.
create table tokens (
  token_id text primary key,
  account_id text not null references accounts(account_id) on delete cascade,
  kind text not null constraint token_kind_is_known check (kind in ('user', 'node', 'service')),
  -- The person who acts with it, or who made it for a program. RS-76
  user_id text not null references people(user_id) on delete cascade,
  -- The token has no more rights than this, and no more than the person has now.
  role text not null constraint role_is_known check (role in ('viewer', 'member', 'admin')),
  name text not null,
  -- The only node that may use the token; null means any.
  node_id text constraint only_nodes_have_a_node check (node_id is null or kind = 'node'),
  digest text not null unique,
  created_at timestamptz not null default clock_timestamp(),
  expires_at timestamptz, last_used_at timestamptz, revoked_at timestamptz
) with (fillfactor = 70);
create index tokens_account_idx on tokens(account_id, token_id);
create index tokens_user_idx on tokens(user_id, account_id);

-- The sign-ins of browsers. A cookie names one, and is signed.
create table sign_ins (
  sign_in_id text primary key,
  user_id text not null references people(user_id) on delete cascade,
  -- The token by which the browser signed in; it ends with it. Null: the owner's, a password or an identity.
  token_id text references tokens(token_id) on delete cascade,
  issuer text,  -- of the provider of OpenID Connect by which the person signed in
  created_at timestamptz not null default clock_timestamp(),
  expires_at timestamptz not null,
  ended_at timestamptz
);
create index sign_ins_user_idx on sign_ins(user_id, expires_at);
create index sign_ins_token_idx on sign_ins(token_id) where token_id is not null;

-- The secret keys of the server, which all instances share.
create table server_keys (
  name text primary key,
  key text not null constraint key_is_long check (length(key) >= 32)
);

-- The settings of accounts. A secret is encrypted, with the id of its key, and has no plain value. RX-19
create table settings (
  account_id text not null references accounts(account_id) on delete cascade,
  name text not null constraint setting_is_named check (name <> ''),
  value text, encrypted bytea, key_id text,
  primary key (account_id, name),
  constraint value_or_encrypted check ((value is null) = (encrypted is not null)),
  constraint encrypted_has_key check ((encrypted is null) = (key_id is null))
);

-- The secrets that accounts store for the actions of their canvases. Only the encrypted value is stored.
create table secrets (
  account_id text not null references accounts(account_id) on delete cascade,
  name text not null constraint secret_is_named check (name <> ''),
  key_id text not null, data bytea not null,
  created_at timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp(),
  primary key (account_id, name)
);

-- Flows in which a person connects a provider, from their start to the callback, which deletes its row. RX-21
create table oauth_state (
  state text primary key,
  code_verifier text not null,
  expires_at timestamptz not null,
  provider text not null,
  account_id text references accounts(account_id) on delete cascade,
  user_id text references people(user_id) on delete cascade,
  sign_in_id text,  -- of the browser; null: begun by a token
  redirect_uri text not null, origin text not null,
  -- A sign-in by OpenID Connect has no account yet. It has the digest of a cookie of the browser and a nonce,
  -- its issuer as the provider and where it leads as the origin. The digest of an invitation: whose it is.
  browser text, nonce text, invitation text,
  constraint flow_has_an_account_or_a_browser check (
    (account_id is null) = (browser is not null) and (user_id is null) = (browser is not null)
    and (nonce is null) = (browser is null) and (invitation is null or browser is not null))
);
create index oauth_state_expires_idx on oauth_state(expires_at);
create index oauth_state_account_idx on oauth_state(account_id, user_id);
create index oauth_state_user_idx on oauth_state(user_id);

-- The connections of accounts to OAuth providers. The tokens are encrypted. RX-20
create table auth (
  account_id text not null references accounts(account_id) on delete cascade,
  provider text not null,
  user_id text not null references people(user_id) on delete cascade,  -- who signed it in
  key_id text not null, data bytea not null,
  scopes text not null,
  connected_at timestamptz not null,
  expires_at timestamptz,  -- when the access token is refreshed, a little before its end; null: never
  revision text not null,  -- another one after each change of the tokens, also after a new connection
  -- The claim of the process that refreshes the tokens. No transaction is open during its request.
  refresh_id text, refresh_until timestamptz,
  must_reconnect boolean not null default false,
  primary key (account_id, provider),
  constraint refresh_has_an_end check ((refresh_id is null) = (refresh_until is null))
);
create index auth_user_idx on auth(user_id);

create table sessions (
  account_id text not null references accounts(account_id) on delete cascade,
  session_id text not null, title text,
  -- The person who made it, or who answers for the program that did. Null: Easel itself.
  created_by text,
  -- The run that has the turn. Enqueueing and ending a run both lock this row, so each sees the other.
  active_run_id text,
  -- The worker that ended the last run, which the next run prefers.
  last_worker_id text,
  -- The thread has the narrative events and user messages from oldest_thread_seq to last_thread_seq. They are
  -- numbered under the lock of this row.
  oldest_thread_seq bigint not null default 1, last_thread_seq bigint not null default 0,
  -- Set by user messages only: it is indexed, and the appends of workers must write no index.
  last_message_at timestamptz not null default now(),
  created_at timestamptz not null default now(),
  -- Set when the session is deleted; its rows are purged later.
  deleted_at timestamptz,
  primary key (account_id, session_id),
  -- A run that is enqueued into a deleted session would be purged with it.
  constraint deleted_means_idle check (deleted_at is null or active_run_id is null)
) with (fillfactor = 70);
create index sessions_listing_idx on sessions(account_id, last_message_at desc, session_id desc);
-- Deleted sessions in the order in which they are purged.
create index sessions_deleted_idx on sessions(deleted_at) where deleted_at is not null;

-- The last place in the threads of deleted sessions. A new session of the same id continues after it, so that
-- an old cursor is never valid in the new thread.
create table ended_threads (
  account_id text not null references accounts(account_id) on delete cascade,
  session_id text not null, last_thread_seq bigint not null,
  primary key (account_id, session_id)
);

-- Its last value is the last turn that was claimed. A new turn comes after it.
create sequence claimed_turns;
select setval('claimed_turns', 1);

create table runs (
  run_id text primary key,
  account_id text not null, session_id text not null, status text not null, input_text text not null,
  -- The markers of what was taken out of the input.
  input_attachments jsonb,
  created_at timestamptz not null default now(), started_at timestamptz, finished_at timestamptz,
  -- The claim: which worker executes the run, and until when.
  owner_id text, lease_until timestamptz,
  -- The fence: every statement that a worker writes with compares (owner_id, attempt).
  attempt integer not null default 0, max_attempts integer not null default 3,
  cancel_requested_at timestamptz, error_message text,
  -- The log has the events from oldest_seq to last_seq.
  oldest_seq bigint not null default 1, last_seq bigint not null default 0,
  -- Whether only the last event of the log is left. A column for the index of prunable runs: if that index
  -- depended on last_seq, every append would write all indexes of the run.
  is_trimmed boolean not null default false,
  -- The last batch of this attempt and where it ended, to recognise a repeated batch.
  batch_no integer not null default 0, batch_seq bigint not null default 0,
  -- The order in which runs arrived.
  queue_no bigint generated always as identity,
  -- The order in which runs are claimed, and when they got the turn of their session; null: the run still
  -- waits for it. Each account counts its own turns, so that all accounts are served in turn.
  turn_no bigint, turn_at timestamptz,
  -- The worker that may claim the run first, for a moment after turn_at; null means any.
  preferred_worker text,
  -- The person who started the run, or who answers for the program that did, and the role of that principal.
  -- Null: Easel itself. The agent of the run never has more rights.
  started_by text,
  started_role text not null default 'member'
    constraint started_role_is_known check (started_role in ('viewer', 'member', 'admin')),
  -- Whether the run has the turn of its session, and waits until its account executes fewer runs.
  waits_for_slot boolean not null default false,
  -- The digest detects a key that is reused for another request.
  idempotency_key text, request_digest text,
  foreign key (account_id, session_id) references sessions(account_id, session_id) on delete cascade,
  constraint status_is_known check (status in ('queued', 'running', 'completed', 'failed', 'cancelled')),
  -- finished_at is set exactly for terminal statuses.
  constraint finished_means_terminal
    check ((finished_at is not null) = (status in ('completed', 'failed', 'cancelled'))),
  constraint running_means_held check (status <> 'running'
    or (owner_id is not null and lease_until is not null and started_at is not null)),
  constraint failed_means_reason check ((error_message is not null) = (status = 'failed')),
  constraint running_means_turn check (turn_no is not null or status in ('queued', 'cancelled')),
  constraint seq_in_order check (oldest_seq >= 1 and last_seq >= 0 and oldest_seq <= last_seq + 1)
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
create index runs_status_created_idx on runs(status, created_at);
create index runs_owner_idx on runs(owner_id);
-- Runs that can be claimed, in the order of claiming.
create index runs_claimable_idx on runs(turn_no, queue_no) where status = 'queued' and turn_no is not null;
-- The turns of an account, of which the next one is made.
create index runs_turns_idx on runs(account_id, turn_no) where status = 'queued' and turn_no is not null;
-- Runs that wait for the turn of their session.
create index runs_waiting_idx on runs(account_id, session_id, queue_no)
  where status = 'queued' and turn_no is null;
-- Runs that wait until their account executes fewer runs. Empty without such a limit.
create index runs_slotless_idx on runs(account_id, queue_no) where waits_for_slot and status = 'queued';
-- Running runs, which are few. Without lease_until, so that a renewal writes no index.
create index runs_held_idx on runs(run_id) where status = 'running';
create index runs_listing_idx on runs(account_id, queue_no desc);
create index runs_status_listing_idx on runs(account_id, status, queue_no desc);
create index runs_session_idx on runs(account_id, session_id, queue_no desc);
create index runs_session_status_idx on runs(account_id, session_id, status, queue_no desc);
-- Ended runs whose logs can be trimmed.
create index runs_prunable_idx on runs(finished_at) where finished_at is not null and not is_trimmed;
create unique index runs_idempotency_idx on runs(account_id, idempotency_key)
  where idempotency_key is not null;
-- One active run per session.
create unique index one_turn_per_session on runs(account_id, session_id)
  where turn_no is not null and status in ('queued', 'running');

-- The logs of runs. A user's long message has deltas with `seq` up to 0, before the log of its run.
create table run_events (
  run_id text not null references runs(run_id) on delete cascade,
  seq bigint not null, event_type text not null, payload jsonb not null,
  created_at timestamptz not null default now(),
  visibility text not null constraint visibility_is_known check (visibility in ('public', 'internal')),
  -- The place of a narrative event in the thread of its session; null for all other events.
  account_id text, session_id text, thread_seq bigint,
  primary key (run_id, seq)
) with (autovacuum_vacuum_insert_scale_factor = 0.1);
create index run_events_created_idx on run_events(run_id, created_at);
create unique index run_events_thread_idx on run_events(account_id, session_id, thread_seq)
  where thread_seq is not null;

create table messages (
  account_id text not null, session_id text not null, thread_seq bigint not null,
  message_id text not null, run_id text not null,
  role text not null constraint role_is_known check (role in ('user', 'assistant')),
  -- A string, or an object of `text` and `attachments` if a part was offloaded to an artifact.
  content jsonb not null,
  -- The final status of the run, for messages of the assistant.
  status text, error_message text,
  -- The event, if it is in the thread only: a user message, or the end of a run that never started.
  payload jsonb,
  created_at timestamptz not null default now(),
  primary key (account_id, session_id, thread_seq),
  foreign key (account_id, session_id) references sessions(account_id, session_id) on delete cascade,
  constraint user_means_event check (role <> 'user' or payload is not null)
);
-- The answers of earlier runs, which a run reads as its context.
create index messages_answer_idx on messages(run_id) where role = 'assistant';
-- The messages that mention artifacts, which are few.
create index messages_with_artifacts_idx on messages(run_id)
  where content::text like '%art\_%' or payload::text like '%art\_%';

-- Messages of role user that only the model reads.
create table hidden_messages (
  run_id text not null references runs(run_id) on delete cascade,
  hidden_no integer not null constraint hidden_no_from_one check (hidden_no >= 1),
  message_id text not null, content jsonb not null,
  -- Whether the message follows the answer of the run; else it precedes the user's message.
  follows_answer boolean not null,
  primary key (run_id, hidden_no)
);

create table boards (
  run_id text not null references runs(run_id) on delete cascade,
  board text not null constraint board_is_known check (board in ('whiteboard', 'blackboard')),
  -- `global` for the whiteboard, which belongs to the whole run.
  edge_id text not null, key text not null,
  -- json, not jsonb: a value is returned exactly as it was written.
  value json not null,
  -- Bytes of the value: the boards of a run have a size limit.
  size bigint not null,
  version bigint not null constraint version_from_one check (version >= 1),
  agent_id text not null, node_id text not null,
  -- The kind of the author: person, agent, service or node.
  kind text not null,
  created_at timestamptz not null default now(), updated_at timestamptz not null default now(),
  primary key (run_id, board, edge_id, key),
  constraint whiteboard_is_global check ((board = 'whiteboard') = (edge_id = 'global'))
);

create table canvases (
  account_id text not null references accounts(account_id) on delete cascade,
  canvas_id text not null, agent_id text not null, title text not null, spec jsonb not null,
  state jsonb not null,
  -- Null means the main session of its agent.
  owner_session_key text,
  revision bigint not null default 1,
  -- The revision that last changed the spec.
  spec_revision bigint not null default 1,
  -- Whether a person wrote the spec or accepted the spec of an agent.
  is_accepted boolean not null default true,
  -- JSON: for each allowed tool its hints and shell arguments, as they were when the spec was written or
  -- accepted. Null: not remembered yet.
  tool_hints text,
  -- The kind and the id of the last principal that wrote the spec or an asset, and when; and of the author of
  -- the title.
  written_by text, written_at timestamptz, titled_by text,
  -- The paths of the state with values that no person wrote since a person accepted the canvas: a JSON object
  -- of JSON pointers and authors.
  unreviewed text not null default '{}',
  -- The consent of the members, which one of them may not change alone; see `core.canvas.consent`.
  consent text not null default '{}',
  -- The person who made it, or who answers for the program that did. Null: Easel itself.
  created_by text,
  -- The log has the events from oldest_seq to last_seq.
  oldest_seq bigint not null default 1, last_seq bigint not null default 0,
  created_at timestamptz not null default now(), updated_at timestamptz not null default now(),
  -- Set when the canvas is deleted; its rows are purged later.
  deleted_at timestamptz,
  primary key (account_id, canvas_id)
) with (fillfactor = 70);
-- Canvases are listed in the order of their bytes, whatever the collation of the database.
create index canvases_listing_idx on canvases(account_id, canvas_id collate "C");
create index canvases_agent_listing_idx on canvases(account_id, agent_id, canvas_id collate "C");
-- Deleted canvases in the order in which they are purged.
create index canvases_deleted_idx on canvases(deleted_at) where deleted_at is not null;

-- The last place in the logs of deleted canvases. A new canvas of the same id continues after it, so that an
-- old cursor is never valid in the new log.
create table ended_canvases (
  account_id text not null references accounts(account_id) on delete cascade,
  canvas_id text not null, last_seq bigint not null,
  primary key (account_id, canvas_id)
);

create table canvas_events (
  account_id text not null, canvas_id text not null, seq bigint not null, event_type text not null,
  visibility text not null constraint visibility_is_known check (visibility in ('public', 'internal')),
  payload jsonb not null, created_at timestamptz not null default now(),
  primary key (account_id, canvas_id, seq),
  foreign key (account_id, canvas_id) references canvases(account_id, canvas_id) on delete cascade
);

-- The bytes of assets are blobs, which are never overwritten: every version of an asset has a new key.
create table canvas_assets (
  account_id text not null, canvas_id text not null, path text not null,
  blob_key text not null unique,
  size bigint not null constraint size_is_counted check (size >= 0),
  primary key (account_id, canvas_id, path),
  foreign key (account_id, canvas_id) references canvases(account_id, canvas_id) on delete cascade
);

-- A version is stored when it is replaced, and has only what the next version changed: an older version is
-- read from the present canvas and all versions since.
create table canvas_versions (
  account_id text not null, canvas_id text not null,
  version_no bigint not null constraint version_no_from_one check (version_no >= 1),
  -- The last revision of the canvas with this content.
  revision bigint not null,
  title text not null, titled_by text,
  -- Empty means the main session of its agent.
  session_key text not null default '',
  -- Null: the next version has the same spec.
  spec jsonb,
  -- Whether the version has its spec and all of its assets, not only those that the next version changed.
  is_complete boolean not null default false,
  -- Whether a person had accepted the spec and the page when they were replaced.
  is_accepted boolean not null,
  tool_hints text, written_by text, written_at timestamptz,
  -- The parts that differ from the version before, as JSON; null for the first version.
  changed text,
  -- The parts that the next version changed.
  next_changed text not null,
  primary key (account_id, canvas_id, version_no),
  foreign key (account_id, canvas_id) references canvases(account_id, canvas_id) on delete cascade
);

-- The assets of a version that the next version changed. Without a blob: the version does not have the asset.
create table canvas_version_assets (
  account_id text not null, canvas_id text not null, version_no bigint not null, path text not null,
  blob_key text, size bigint,
  primary key (account_id, canvas_id, version_no, path),
  foreign key (account_id, canvas_id, version_no)
    references canvas_versions(account_id, canvas_id, version_no) on delete cascade,
  constraint blob_has_size check ((blob_key is null) = (size is null)),
  constraint size_is_counted check (size >= 0)
);
-- A blob may be that of several versions and of the canvas, after a version was restored.
create index canvas_version_assets_blob_idx on canvas_version_assets(blob_key) where blob_key is not null;

-- The views of a canvas. A view is removed with its connection, and expires if the instance of the connection
-- crashes.
create table canvas_views (
  account_id text not null, canvas_id text not null, view_id text not null, client_id text not null,
  -- The person who has it open; null for Easel itself.
  user_id text,
  connection_id text not null, expires_at timestamptz not null,
  primary key (account_id, canvas_id, view_id),
  foreign key (account_id, canvas_id) references canvases(account_id, canvas_id) on delete cascade
);
create index canvas_views_connection_idx on canvas_views(connection_id);
create index canvas_views_expiry_idx on canvas_views(expires_at);

-- One execution of an action, which is also its record: actor, call, times and outcome. CV-48
create table executions (
  account_id text not null, canvas_id text not null, event_id text not null, action_id text not null,
  -- Chosen by the caller: a repeated request has one execution. The digest detects an id that is reused for
  -- another request.
  request_id text, request_digest text,
  status text not null
    constraint action_status_is_known
      check (status in ('asked', 'running', 'completed', 'failed', 'refused')),
  -- The principal that started it, and the person who confirmed it if that was required.
  actor json not null, confirmed_by text,
  tool text,
  -- The resolved call, which a person confirms, until the execution ends. json, not jsonb: it must be
  -- returned exactly as it was written.
  resolved json,
  -- The result or the error.
  answer json,
  -- The revision of the canvas after the end.
  revision bigint,
  -- The position of the canvas's log at which the execution was stored.
  log_seq bigint not null default 0,
  created_at timestamptz not null default clock_timestamp(), started_at timestamptz, ended_at timestamptz,
  -- Until when a person can answer the question, if it was asked.
  answer_until timestamptz,
  -- The claim of the instance that runs it.
  owner_id text, lease_until timestamptz,
  primary key (account_id, event_id),
  foreign key (account_id, canvas_id) references canvases(account_id, canvas_id) on delete cascade,
  constraint running_means_held check (status <> 'running'
    or (owner_id is not null and lease_until is not null and started_at is not null)),
  constraint ended_means_over check ((ended_at is not null) = (status in ('completed', 'failed', 'refused')))
);
create index executions_listing_idx on executions(account_id, canvas_id, event_id desc);
create index executions_status_idx on executions(account_id, canvas_id, status, event_id desc);
create unique index executions_request_idx on executions(account_id, canvas_id, request_id)
  where request_id is not null;
create index executions_running_idx on executions(lease_until) where status = 'running';
-- Executions that wait for a confirmation.
create index executions_waiting_idx on executions(account_id, canvas_id, answer_until) where status = 'asked';
create index executions_ended_idx on executions(ended_at) where ended_at is not null;
create index executions_log_idx on executions(account_id, canvas_id, log_seq);

-- Refresh jobs, one row per job of a spec; claimed like runs.
create table canvas_refreshes (
  account_id text not null, canvas_id text not null, refresh_id text not null, action_id text not null,
  every_ms bigint not null,
  -- Whether the job runs only while the canvas has a view.
  only_watched boolean not null default false,
  next_at timestamptz not null, owner_id text, lease_until timestamptz,
  failures integer not null default 0,
  -- The last error, as JSON.
  error text,
  primary key (account_id, canvas_id, refresh_id),
  foreign key (account_id, canvas_id) references canvases(account_id, canvas_id) on delete cascade
) with (fillfactor = 70);
create index canvas_refreshes_due_idx on canvas_refreshes(next_at);

-- The document of a canvas of mode `markdown`. Its text is that of the newest draft, or empty.
create table documents (
  account_id text not null, canvas_id text not null,
  -- The session that owns the canvas.
  session_id text not null,
  -- When the canvas was created: the newest document of a session is the session's document.
  created_at timestamptz not null,
  -- Whether the canvas has the mode `markdown` now. The text of a canvas that changed its mode is kept.
  is_active boolean not null default true,
  -- Whether a draft of the document is not reported by a hidden message.
  has_unreported boolean not null default false,
  -- Raised whenever the user interrupts the assistant.
  epoch bigint not null default 0,
  -- The run that may write to the document, and until when.
  lease_id text, lease_run_id text, lease_session_id text, lease_expires_at timestamptz,
  -- The runs that a person has taken the document from, separated by spaces. A message and a cancel are not
  -- recorded here: the runs show them.
  interrupted_run_ids text not null default '',
  -- The lines that the holder of the lease was shown, as [first, last] pairs.
  inspected jsonb not null default '[]',
  primary key (account_id, canvas_id),
  foreign key (account_id, canvas_id) references canvases(account_id, canvas_id) on delete cascade,
  constraint lease_is_complete
    check (num_nulls(lease_id, lease_run_id, lease_session_id, lease_expires_at) in (0, 4)),
  constraint leased_means_active check (is_active or lease_id is null),
  constraint epoch_from_zero check (epoch >= 0)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
create index documents_session_idx on documents(account_id, session_id, created_at desc, canvas_id desc)
  where is_active;
create index documents_unreported_idx on documents(account_id, session_id) where has_unreported and is_active;
-- Leased documents, which are few. Without lease_expires_at, so that a renewal writes no index.
create index documents_leased_idx on documents(lease_session_id, lease_run_id, account_id)
  where lease_id is not null;

-- The texts of authors, in order. Of the reported drafts only the newest is kept, as the base of the next.
create table document_drafts (
  account_id text not null, canvas_id text not null,
  draft_no bigint not null constraint draft_no_from_one check (draft_no >= 1),
  text text not null, revision_id text not null,
  author_kind text not null constraint author_is_known check (author_kind in ('person', 'assistant')),
  author_id text not null, author_run_id text,
  -- Whether a report of the draft is being made, so that a later text of its author is another draft.
  is_closed boolean not null default false,
  -- Whether the text is a version, or equals the version before. The drafts of which it is true come first.
  is_versioned boolean not null default false,
  -- Whether a hidden message reports the draft.
  is_reported boolean not null default false,
  primary key (account_id, canvas_id, draft_no),
  foreign key (account_id, canvas_id) references documents(account_id, canvas_id) on delete cascade,
  constraint reported_means_closed check (is_closed or not is_reported),
  constraint reported_means_versioned check (is_versioned or not is_reported)
);

create table document_versions (
  account_id text not null, canvas_id text not null,
  version_no bigint not null constraint version_no_from_one check (version_no >= 1),
  text text not null,
  -- Bytes of the text.
  size bigint not null constraint size_is_counted check (size >= 0),
  revision_id text not null,
  author_kind text not null constraint author_is_known check (author_kind in ('person', 'assistant')),
  author_id text not null, author_run_id text,
  created_at timestamptz not null default clock_timestamp(),
  primary key (account_id, canvas_id, version_no),
  foreign key (account_id, canvas_id) references documents(account_id, canvas_id) on delete cascade
);
create index document_versions_revision_idx on document_versions(revision_id, account_id, canvas_id);

-- Bytes stored outside the logs. The id is the digest of the bytes. Every row has a new blob key, so that
-- sweeping the blob of a deleted row never deletes the blob of a new one.
create table artifacts (
  account_id text not null references accounts(account_id) on delete cascade,
  artifact_id text not null, size bigint not null, media_type text not null,
  blob_key text not null unique,
  -- Whether the blob is completely stored.
  is_stored boolean not null default false,
  -- The last time that a caller was about to refer to it; the sweep skips recent ones.
  touched_at timestamptz not null default now(),
  primary key (account_id, artifact_id)
);

-- References to an artifact, each from a run (its events, messages, boards) or a canvas. A referenced
-- artifact is kept.
create table artifact_refs (
  account_id text not null, artifact_id text not null,
  run_id text references runs(run_id) on delete cascade,
  canvas_id text,
  -- The log position at which the holder was last known to mention the artifact; null: not known yet. For a
  -- run it is set when its log was pruned and the rest of the run still mentions the artifact.
  mentioned_seq bigint,
  foreign key (account_id, artifact_id) references artifacts(account_id, artifact_id),
  foreign key (account_id, canvas_id) references canvases(account_id, canvas_id) on delete cascade,
  constraint one_holder check ((run_id is null) <> (canvas_id is null))
);
-- Of an artifact, for its sweep and for the foreign key.
create index artifact_refs_artifact_idx on artifact_refs(account_id, artifact_id);
create unique index artifact_refs_run_idx on artifact_refs(account_id, artifact_id, run_id)
  where run_id is not null;
create unique index artifact_refs_canvas_idx on artifact_refs(account_id, artifact_id, canvas_id)
  where canvas_id is not null;
create index artifact_refs_of_run_idx on artifact_refs(run_id) where run_id is not null;
create index artifact_refs_mentioned_idx on artifact_refs(account_id, canvas_id, mentioned_seq)
  where canvas_id is not null;

-- The totals of each account: the bytes of its stored artifacts, and its model tokens of a UTC day.
create table account_totals (
  account_id text primary key references accounts(account_id) on delete cascade,
  stored_bytes bigint not null default 0,
  token_day text not null default '', model_tokens bigint not null default 0
) with (fillfactor = 50);
-- A trigger, so that every statement that stores or deletes artifacts is counted.
create function count_stored_bytes() returns trigger language plpgsql as $$
declare
  change bigint := 0;
begin
  if tg_op <> 'INSERT' and old.is_stored then
    change := change - old.size;
  end if;
  if tg_op <> 'DELETE' and new.is_stored then
    change := change + new.size;
  end if;
  if change > 0 then
    insert into account_totals (account_id, stored_bytes) values (new.account_id, change)
    on conflict (account_id) do update set stored_bytes = account_totals.stored_bytes + excluded.stored_bytes;
  elsif change < 0 then
    update account_totals set stored_bytes = stored_bytes + change where account_id = old.account_id;
  end if;
  return null;
end $$;
create trigger stored_bytes_are_counted after insert or delete or update of is_stored, size on artifacts
  for each row execute function count_stored_bytes();

-- The counts of each instance for each account or token in use: its requests since the row was made, and its
-- open streams and running actions. A row expires soon after its last use. Nothing is lost with them, so they
-- are not logged.
create unlogged table usage_counts (
  subject text not null, instance_id text not null,
  requests bigint not null, streams integer not null, actions integer not null,
  expires_at timestamptz not null,
  primary key (subject, instance_id)
) with (fillfactor = 50);

-- Connected machines, on any instance, and their tools. A row expires if the instance of the connection
-- crashes.
create table nodes (
  account_id text not null references accounts(account_id) on delete cascade,
  node_id text not null,
  user_id text not null,  -- who answers for the node
  connection_id text not null unique,
  instance_id text not null, version text not null, platform text not null,
  -- json, not jsonb: a schema is returned exactly as it was declared.
  tools json not null, connected_at timestamptz not null default clock_timestamp(),
  expires_at timestamptz not null,
  primary key (account_id, node_id)
) with (fillfactor = 70);

-- Calls to a connection of another instance. A row exists as long as its call.
create table calls (
  call_id text primary key,
  account_id text not null references accounts(account_id) on delete cascade,
  -- The connection, not the node: when the connection ends, the call fails.
  target text not null, method text not null, params json not null,
  status text not null constraint call_status_is_known check (status in ('asked', 'taken', 'answered')),
  answer json, deadline timestamptz not null,
  -- The time until which the caller waits for the answer, unless it is renewed.
  heard_until timestamptz not null default 'infinity', cancelled_at timestamptz,
  constraint answered_means_answer check ((answer is not null) = (status = 'answered'))
);
create index calls_target_idx on calls(target) where status <> 'answered';
create index calls_deadline_idx on calls(deadline);

-- The order of all events of an account, for clients that follow the account: a number for each event over
-- all logs. Numbers run on when following ends and starts again, so that an old one is never valid again.
create table account_orders (
  account_id text primary key references accounts(account_id) on delete cascade,
  -- The order has the numbers from oldest_seq to last_seq.
  oldest_seq bigint not null default 1, last_seq bigint not null default 0,
  -- Until when the account is followed unless renewed; null: it is not, and its appends are not ordered.
  followed_until timestamptz,
  -- Whether every append that has not committed yet will be ordered.
  is_complete boolean not null default false,
  constraint complete_means_followed check (followed_until is not null or not is_complete),
  constraint seq_in_order check (oldest_seq >= 1 and last_seq >= 0 and oldest_seq <= last_seq + 1)
) with (fillfactor = 50);
-- Followed accounts, which are few.
create index account_orders_followed_idx on account_orders(followed_until) where followed_until is not null;

-- Appends to the logs of followed accounts that have no number yet, one row for each transaction: a JSON list
-- of [account_id, log_type, log_id, first_seq, last_seq]. append_no is taken under the locks of the logs.
create table unordered_appends (
  append_no bigint generated always as identity primary key,
  appends json not null
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
-- Its lock is that of the transaction which numbers them.
create table order_head (only_row boolean primary key default true check (only_row));
insert into order_head values (true);

-- The order: each row numbers the events of one log from first_seq to last_seq, up to server_seq.
create table ordered_appends (
  account_id text not null references account_orders(account_id) on delete cascade,
  server_seq bigint not null,
  log_type text not null constraint log_type_is_known check (log_type in ('run', 'canvas', 'account')),
  log_id text not null, first_seq bigint not null, last_seq bigint not null,
  primary key (account_id, server_seq),
  constraint append_has_events check (first_seq <= last_seq)
);

-- The audit chain: the hash of each record covers the record before, so that edits, removals and reordering
-- are detected.
create table audit (
  seq bigint primary key,
  account_id text not null, at timestamptz not null,
  storage_class text not null constraint class_is_known check (storage_class in ('ops', 'audit')),
  action text not null,
  -- The exact text that is hashed.
  record text not null,
  hash text not null
);
create index audit_account_idx on audit(account_id, seq);
create index audit_action_idx on audit(account_id, action, seq);
-- The end of the chain. Its lock orders the records.
create table audit_head (
  only_row boolean primary key default true check (only_row),
  last_seq bigint not null,
  last_hash text not null
);
insert into audit_head (last_seq, last_hash) values (0, '');
-- The signed position of the last record that was removed.
create table audit_checkpoint (
  only_row boolean primary key default true check (only_row),
  seq bigint not null constraint seq_from_one check (seq >= 1),
  hash text not null,
  signature text not null
);

-- Work that one instance at a time does for all, and when the next one may do it.
create table sweeps (
  name text primary key,
  next_at timestamptz not null
);

-- One row that the readiness check rewrites, to know that a durable write is possible.
create table probes (
  only_row boolean primary key default true check (only_row),
  probed_at timestamptz not null
);

-- End the leases that runs of a session hold and those of its documents, or those of one run, because the
-- user acted: raise the epoch and append an event to the log of each canvas. Returns the canvases, or null.
-- The caller has locked the session. RS-79
-- A function, because it is called by the statement that enqueues a run: each statement in it sees what was
-- committed while the caller waited for the session, such as a lease.
create function end_leases(for_account text, for_session text, for_run text, by_run text, event text)
returns text[] language plpgsql as $$
declare
  leased record;
  place record;
  raised bigint;
  ended text[];
begin
  for leased in
    select canvas_id from documents
     where lease_id is not null and account_id = for_account
       and for_session in (lease_session_id, session_id)
       and (for_run is null or lease_run_id = for_run)
     order by canvas_id collate "C"  -- as the other transactions that lock several documents
  loop
    perform from canvases where account_id = for_account and canvas_id = leased.canvas_id for update;
    update documents
       set epoch = epoch + 1, inspected = '[]', lease_id = null,
           lease_run_id = null, lease_session_id = null, lease_expires_at = null
     where account_id = for_account and canvas_id = leased.canvas_id
       and for_session in (lease_session_id, session_id) and (for_run is null or lease_run_id = for_run)
    returning epoch into raised;
    continue when not found;
    update canvases set last_seq = last_seq + 1
     where account_id = for_account and canvas_id = leased.canvas_id
    returning last_seq, revision into place;
    insert into canvas_events (account_id, canvas_id, seq, event_type, visibility, payload, created_at)
    values (for_account, leased.canvas_id, place.last_seq, 'canvas.lease.changed', 'public',
            event::jsonb || jsonb_build_object(
              'canvasId', leased.canvas_id, 'revision', place.revision, 'canvas_epoch', raised,
              'provenance', event::jsonb->'provenance'
                || jsonb_build_object('agent_id', for_account, 'run_id', by_run)),
            clock_timestamp());
    insert into unordered_appends (appends)
    select json_build_array(json_build_array(for_account, 'canvas', leased.canvas_id,
                                             place.last_seq, place.last_seq))
      from account_orders o where o.account_id = for_account and o.followed_until is not null;
    ended := ended || leased.canvas_id;
  end loop;
  return ended;
end $$;

-- Append an event to the log of an account, delete the one that is too old, and let the append be ordered, if
-- the account is followed. Returns its number.
-- A function, because it is called by the statement that enqueues a run: the number is read after the lock.
create function append_account_event(to_account text, new_type text, event text)
returns bigint language plpgsql as $$
declare
  next_seq bigint;
begin
  perform from accounts where account_id = to_account for no key update;
  select coalesce(max(seq), 0) + 1 into next_seq from account_events where account_id = to_account;
  insert into account_events (account_id, seq, event_type, visibility, payload, created_at)
  values (to_account, next_seq, new_type, 'public', event::jsonb, clock_timestamp());
  delete from account_events where account_id = to_account and seq <= next_seq - 1000;
  insert into unordered_appends (appends)
  select json_build_array(json_build_array(to_account, 'account', to_account, next_seq, next_seq))
    from account_orders where account_id = to_account and followed_until is not null;
  return next_seq;
end $$;

-- Give turns to runs of an account that wait for a slot, until `max_runs` runs of the account have a turn and
-- have not ended; 0: no limit. Returns how many got one.
-- A function, because it is called by the statement that enqueues a run: what it reads once it has locked the
-- account includes what was committed before. It skips a run that is being cancelled, for which it is called
-- again.
create function give_slots(for_account text, max_runs integer) returns integer language plpgsql as $$
declare
  free integer := 1000;
  given integer;
begin
  perform from accounts where account_id = for_account for no key update;
  if max_runs > 0 then
    select max_runs - count(*) into free
      from (select from runs where account_id = for_account and turn_no is not null
               and status in ('queued', 'running') limit max_runs) used;
  end if;
  if free = 0 then
    return 0;
  end if;
  with next as (
    select run_id from runs
     where account_id = for_account and waits_for_slot and status = 'queued'
     order by queue_no limit free for update skip locked
  ), turns as (
    select run_id, row_number() over (order by run_id)
             + greatest((select pg_sequence_last_value('claimed_turns')),
                        (select r.turn_no from runs r
                          where r.account_id = for_account and r.status = 'queued'
                            and r.turn_no > (select pg_sequence_last_value('claimed_turns'))
                          order by r.turn_no desc limit 1)) as turn_no
      from next
  )
  update runs r set turn_no = t.turn_no, turn_at = clock_timestamp(), waits_for_slot = false,
                    preferred_worker = null
    from turns t where r.run_id = t.run_id;
  get diagnostics given = row_count;
  return given;
end $$;

-- Return how many queued runs an account has; fail if they are more than `max_queued`.
create function count_queued(for_account text, max_queued integer) returns integer language plpgsql as $$
declare
  counted integer;
begin
  select count(*) into counted
    from (select from runs where account_id = for_account and status = 'queued' limit max_queued + 1) queued;
  if counted > max_queued then
    raise exception 'queued_runs';
  end if;
  return counted;
end $$;

-- Pin statistics whose real values can lead to a plan that reads a whole log or a whole table. Trimmed logs
-- have one event each. If most runs have one, the index on created_at seems as good as the primary key, and
-- each page of a log would read and sort the whole log. Assume 50 events per run.
alter table run_events alter column run_id set (n_distinct = -0.02);
-- If there are few accounts, it seems best to read all records from the newest on until a page of one account
-- is found, which never ends for one with few records. Assume 100 records per account.
alter table audit alter column account_id set (n_distinct = -0.01);
-- If all rows have one status, the index on the status seems useless, but a listing of another status needs
-- it.
alter table runs alter column status set (n_distinct = 5);
alter table executions alter column status set (n_distinct = 5);
-- If all canvases have one agent, the index on the agent seems useless in the same way. Assume 100 canvases
-- per agent.
alter table canvases alter column agent_id set (n_distinct = -0.01);
-- If most sessions have one run and most canvases one execution, every index that begins with the session or
-- the canvas seems equally good. Assume 50 runs per session and 100 executions per canvas.
alter table runs alter column session_id set (n_distinct = -0.02);
alter table executions alter column canvas_id set (n_distinct = -0.01);
