-- The schema, as in `../postgres/0001_schema.sql`, which says what the tables, columns and indexes are for.
-- Times are whole microseconds since 1970, UTC.

create table accounts (
  account_id text not null primary key constraint account_id_is_a_name
    check (length(account_id) between 1 and 63 and account_id not glob '*[^a-z0-9-]*'),
  kind text not null default 'person' constraint account_kind_is_known check (kind in ('person', 'team')),
  created_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
  disabled_at integer,
  -- Set when the account is deleted: its rows and blobs are being purged.
  deleted_at integer,
  constraint deleted_means_disabled check (deleted_at is null or disabled_at is not null)
) strict;
create table ended_accounts (
  account_id text not null primary key,
  ended_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer))
) strict, without rowid;
create table people (
  user_id text not null primary key references accounts(account_id) on delete cascade,
  is_operator integer not null default 0 check (is_operator in (0, 1)),
  display_name text, password_hash text
) strict;
create index people_operators_idx on people(user_id) where is_operator;
create table team_members (
  account_id text not null references accounts(account_id) on delete cascade,
  user_id text not null references people(user_id) on delete cascade,
  role text not null constraint role_is_known check (role in ('viewer', 'member', 'admin')),
  from_claim integer not null default 0 check (from_claim in (0, 1)),
  created_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
  primary key (account_id, user_id)
) strict, without rowid;
create index team_members_user_idx on team_members(user_id);
create table departures (
  account_id text not null references accounts(account_id) on delete cascade,
  user_id text not null,
  left_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
  primary key (account_id, user_id)
) strict, without rowid;
create index departures_left_idx on departures(left_at);
create table identities (
  issuer text not null, subject text not null,
  user_id text not null,
  created_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
  primary key (issuer, subject)
) strict, without rowid;
create index identities_user_idx on identities(user_id);
create table invitations (
  digest text not null primary key,
  user_id text not null references people(user_id) on delete cascade,
  created_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
  expires_at integer not null
) strict;
create index invitations_user_idx on invitations(user_id);
create index accounts_deleted_idx on accounts(deleted_at) where deleted_at is not null;
insert into accounts (account_id) values ('owner');
insert into people (user_id, is_operator) values ('owner', true);

create table account_events (
  account_id text not null references accounts(account_id) on delete cascade,
  seq integer not null, event_type text not null,
  visibility text not null constraint visibility_is_known check (visibility in ('public', 'internal')),
  payload text not null constraint payload_is_json check (json_valid(payload)),
  created_at integer not null,
  primary key (account_id, seq)
) strict, without rowid;
create trigger account_log_is_bounded after insert on account_events begin
  delete from account_events where account_id = new.account_id and seq <= new.seq - 1000;
end;

create table tokens (
  token_id text not null primary key,
  account_id text not null references accounts(account_id) on delete cascade,
  kind text not null constraint token_kind_is_known check (kind in ('user', 'node', 'service')),
  user_id text not null references people(user_id) on delete cascade,
  role text not null constraint role_is_known check (role in ('viewer', 'member', 'admin')),
  name text not null,
  node_id text constraint only_nodes_have_a_node check (node_id is null or kind = 'node'),
  digest text not null unique,
  created_at integer not null,
  expires_at integer, last_used_at integer, revoked_at integer
) strict;
create index tokens_account_idx on tokens(account_id, token_id);
create index tokens_user_idx on tokens(user_id, account_id);

create table sign_ins (
  sign_in_id text not null primary key,
  user_id text not null references people(user_id) on delete cascade,
  token_id text references tokens(token_id) on delete cascade,
  issuer text,
  created_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
  expires_at integer not null,
  ended_at integer
) strict;
create index sign_ins_user_idx on sign_ins(user_id, expires_at);
create index sign_ins_token_idx on sign_ins(token_id) where token_id is not null;

create table server_keys (
  name text not null primary key,
  key text not null constraint key_is_long check (length(key) >= 32)
) strict, without rowid;

create table settings (
  account_id text not null references accounts(account_id) on delete cascade,
  name text not null constraint setting_is_named check (name <> ''),
  value text, encrypted blob, key_id text,
  primary key (account_id, name),
  constraint value_or_encrypted check ((value is null) = (encrypted is not null)),
  constraint encrypted_has_key check ((encrypted is null) = (key_id is null))
) strict, without rowid;

create table secrets (
  account_id text not null references accounts(account_id) on delete cascade,
  name text not null constraint secret_is_named check (name <> ''),
  key_id text not null, data blob not null,
  created_at integer not null, updated_at integer not null,
  primary key (account_id, name)
) strict, without rowid;

create table oauth_state (
  state text not null primary key,
  code_verifier text not null,
  expires_at integer not null,
  provider text not null,
  account_id text references accounts(account_id) on delete cascade,
  user_id text references people(user_id) on delete cascade,
  sign_in_id text,
  redirect_uri text not null, origin text not null,
  browser text, nonce text, invitation text,
  constraint flow_has_an_account_or_a_browser check (
    (account_id is null) = (browser is not null) and (user_id is null) = (browser is not null)
    and (nonce is null) = (browser is null) and (invitation is null or browser is not null))
) strict;
create index oauth_state_expires_idx on oauth_state(expires_at);
create index oauth_state_account_idx on oauth_state(account_id, user_id);
create index oauth_state_user_idx on oauth_state(user_id);

create table auth (
  account_id text not null references accounts(account_id) on delete cascade,
  provider text not null,
  user_id text not null references people(user_id) on delete cascade,
  key_id text not null, data blob not null,
  scopes text not null,
  connected_at integer not null,
  expires_at integer,
  revision text not null,
  refresh_id text, refresh_until integer,
  must_reconnect integer not null default 0,
  primary key (account_id, provider),
  constraint refresh_has_an_end check ((refresh_id is null) = (refresh_until is null))
) strict;
create index auth_user_idx on auth(user_id);

create table sessions (
  account_id text not null references accounts(account_id) on delete cascade,
  session_id text not null, title text, created_by text, active_run_id text, last_worker_id text,
  oldest_thread_seq integer not null default 1, last_thread_seq integer not null default 0,
  last_message_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
  created_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
  deleted_at integer,
  primary key (account_id, session_id),
  constraint deleted_means_idle check (deleted_at is null or active_run_id is null)
) strict;
create index sessions_listing_idx on sessions(account_id, last_message_at desc, session_id desc);
create index sessions_deleted_idx on sessions(deleted_at) where deleted_at is not null;

create table ended_threads (
  account_id text not null references accounts(account_id) on delete cascade,
  session_id text not null, last_thread_seq integer not null,
  primary key (account_id, session_id)
) strict;

-- The number of the last arrival, and the last turn that was claimed.
create table run_counters (
  only_row integer not null primary key default 1 check (only_row = 1),
  queue_no integer not null default 0, turn_no integer not null default 0
) strict, without rowid;
insert into run_counters (only_row) values (1);

create table runs (
  run_id text not null primary key,
  account_id text not null, session_id text not null, status text not null, input_text text not null,
  input_attachments text,
  created_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
  started_at integer, finished_at integer,
  owner_id text, lease_until integer,
  attempt integer not null default 0, max_attempts integer not null default 3,
  cancel_requested_at integer, error_message text,
  oldest_seq integer not null default 1, last_seq integer not null default 0,
  batch_no integer not null default 0, batch_seq integer not null default 0,
  queue_no integer not null, turn_no integer, turn_at integer, preferred_worker text,
  started_by text,
  started_role text not null default 'member'
    constraint started_role_is_known check (started_role in ('viewer', 'member', 'admin')),
  waits_for_slot integer not null default 0,
  idempotency_key text, request_digest text,
  foreign key (account_id, session_id) references sessions(account_id, session_id) on delete cascade,
  constraint status_is_known check (status in ('queued', 'running', 'completed', 'failed', 'cancelled')),
  constraint finished_means_terminal
    check ((finished_at is not null) = (status in ('completed', 'failed', 'cancelled'))),
  constraint running_means_held check (status <> 'running'
    or (owner_id is not null and lease_until is not null and started_at is not null)),
  constraint failed_means_reason check ((error_message is not null) = (status = 'failed')),
  constraint running_means_turn check (turn_no is not null or status in ('queued', 'cancelled')),
  constraint seq_in_order check (oldest_seq >= 1 and last_seq >= 0 and oldest_seq <= last_seq + 1)
) strict;
create index runs_status_created_idx on runs(status, created_at);
create index runs_owner_idx on runs(owner_id);
create index runs_claimable_idx on runs(turn_no, queue_no) where status = 'queued' and turn_no is not null;
create index runs_turns_idx on runs(account_id, turn_no) where status = 'queued' and turn_no is not null;
create index runs_waiting_idx on runs(account_id, session_id, queue_no)
  where status = 'queued' and turn_no is null;
create index runs_slotless_idx on runs(account_id, queue_no) where waits_for_slot and status = 'queued';
create index runs_held_idx on runs(run_id) where status = 'running';
create index runs_listing_idx on runs(account_id, queue_no desc);
create index runs_status_listing_idx on runs(account_id, status, queue_no desc);
create index runs_session_idx on runs(account_id, session_id, queue_no desc);
create index runs_session_status_idx on runs(account_id, session_id, status, queue_no desc);
create index runs_prunable_idx on runs(finished_at) where finished_at is not null and oldest_seq < last_seq;
create unique index runs_idempotency_idx on runs(account_id, idempotency_key)
  where idempotency_key is not null;
create unique index one_turn_per_session on runs(account_id, session_id)
  where turn_no is not null and status in ('queued', 'running');

create table run_events (
  run_id text not null references runs(run_id) on delete cascade,
  seq integer not null, event_type text not null,
  payload text not null constraint payload_is_json check (json_valid(payload)),
  created_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
  visibility text not null constraint visibility_is_known check (visibility in ('public', 'internal')),
  account_id text, session_id text, thread_seq integer,
  primary key (run_id, seq)
) strict, without rowid;
create index run_events_created_idx on run_events(run_id, created_at);
create unique index run_events_thread_idx on run_events(account_id, session_id, thread_seq)
  where thread_seq is not null;

create table messages (
  account_id text not null, session_id text not null, thread_seq integer not null,
  message_id text not null, run_id text not null,
  role text not null constraint role_is_known check (role in ('user', 'assistant')),
  content text not null constraint content_is_json check (json_valid(content)),
  status text, error_message text,
  payload text constraint payload_is_json check (payload is null or json_valid(payload)),
  created_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
  primary key (account_id, session_id, thread_seq),
  foreign key (account_id, session_id) references sessions(account_id, session_id) on delete cascade,
  constraint user_means_event check (role <> 'user' or payload is not null)
) strict;
create index messages_answer_idx on messages(run_id) where role = 'assistant';
create index messages_with_artifacts_idx on messages(run_id)
  where instr(content, 'art_') > 0 or instr(payload, 'art_') > 0;

create table hidden_messages (
  run_id text not null references runs(run_id) on delete cascade,
  hidden_no integer not null constraint hidden_no_from_one check (hidden_no >= 1),
  message_id text not null, content text not null constraint content_is_json check (json_valid(content)),
  follows_answer integer not null check (follows_answer in (0, 1)),
  primary key (run_id, hidden_no)
) strict;

create table boards (
  run_id text not null references runs(run_id) on delete cascade,
  board text not null constraint board_is_known check (board in ('whiteboard', 'blackboard')),
  edge_id text not null, key text not null,
  value text not null constraint value_is_json check (json_valid(value)),
  size integer not null,
  version integer not null constraint version_from_one check (version >= 1),
  agent_id text not null, node_id text not null, kind text not null,
  created_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
  updated_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
  primary key (run_id, board, edge_id, key),
  constraint whiteboard_is_global check ((board = 'whiteboard') = (edge_id = 'global'))
) strict;

create table canvases (
  account_id text not null references accounts(account_id) on delete cascade,
  canvas_id text not null, agent_id text not null, title text not null,
  spec text not null constraint spec_is_json check (json_valid(spec)),
  state text not null constraint state_is_json check (json_valid(state)),
  owner_session_key text,
  revision integer not null default 1, spec_revision integer not null default 1,
  is_accepted integer not null default 1 check (is_accepted in (0, 1)),
  tool_hints text, written_by text, written_at integer, titled_by text,
  unreviewed text not null default '{}',
  consent text not null default '{}', created_by text,
  oldest_seq integer not null default 1, last_seq integer not null default 0,
  created_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
  updated_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
  deleted_at integer,
  primary key (account_id, canvas_id)
) strict;
create index canvases_agent_listing_idx on canvases(account_id, agent_id, canvas_id);
create index canvases_deleted_idx on canvases(deleted_at) where deleted_at is not null;

create table ended_canvases (
  account_id text not null references accounts(account_id) on delete cascade,
  canvas_id text not null, last_seq integer not null,
  primary key (account_id, canvas_id)
) strict;

create table canvas_events (
  account_id text not null, canvas_id text not null, seq integer not null, event_type text not null,
  visibility text not null constraint visibility_is_known check (visibility in ('public', 'internal')),
  payload text not null constraint payload_is_json check (json_valid(payload)),
  created_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
  primary key (account_id, canvas_id, seq),
  foreign key (account_id, canvas_id) references canvases(account_id, canvas_id) on delete cascade
) strict, without rowid;

create table canvas_assets (
  account_id text not null, canvas_id text not null, path text not null,
  blob_key text not null unique,
  size integer not null constraint size_is_counted check (size >= 0),
  primary key (account_id, canvas_id, path),
  foreign key (account_id, canvas_id) references canvases(account_id, canvas_id) on delete cascade
) strict;

create table canvas_versions (
  account_id text not null, canvas_id text not null,
  version_no integer not null constraint version_no_from_one check (version_no >= 1),
  revision integer not null, title text not null, titled_by text,
  session_key text not null default '',
  is_complete integer not null default 0 check (is_complete in (0, 1)),
  is_accepted integer not null check (is_accepted in (0, 1)),
  tool_hints text, written_by text, written_at integer,
  changed text, next_changed text not null,
  -- The last column, so that a listing does not read it.
  spec text constraint spec_is_json check (spec is null or json_valid(spec)),
  primary key (account_id, canvas_id, version_no),
  foreign key (account_id, canvas_id) references canvases(account_id, canvas_id) on delete cascade
) strict;
-- Few rows. In Postgres a page of the primary key is enough.
create index canvas_versions_complete_idx on canvas_versions(account_id, canvas_id, version_no)
  where is_complete;

create table canvas_version_assets (
  account_id text not null, canvas_id text not null, version_no integer not null, path text not null,
  blob_key text, size integer,
  primary key (account_id, canvas_id, version_no, path),
  foreign key (account_id, canvas_id, version_no)
    references canvas_versions(account_id, canvas_id, version_no) on delete cascade,
  constraint blob_has_size check ((blob_key is null) = (size is null)),
  constraint size_is_counted check (size >= 0)
) strict, without rowid;
create index canvas_version_assets_blob_idx on canvas_version_assets(blob_key) where blob_key is not null;

create table canvas_views (
  account_id text not null, canvas_id text not null, view_id text not null, client_id text not null,
  user_id text,
  connection_id text not null, expires_at integer not null,
  primary key (account_id, canvas_id, view_id),
  foreign key (account_id, canvas_id) references canvases(account_id, canvas_id) on delete cascade
) strict;
create index canvas_views_connection_idx on canvas_views(connection_id);
create index canvas_views_expiry_idx on canvas_views(expires_at);

create table executions (
  account_id text not null, canvas_id text not null, event_id text not null, action_id text not null,
  request_id text, request_digest text,
  status text not null
    constraint action_status_is_known
      check (status in ('asked', 'running', 'completed', 'failed', 'refused')),
  actor text not null, confirmed_by text,
  tool text, resolved text, answer text,
  revision integer, log_seq integer not null default 0,
  created_at integer not null, started_at integer, ended_at integer, answer_until integer,
  owner_id text, lease_until integer,
  primary key (account_id, event_id),
  foreign key (account_id, canvas_id) references canvases(account_id, canvas_id) on delete cascade,
  constraint running_means_held check (status <> 'running'
    or (owner_id is not null and lease_until is not null and started_at is not null)),
  constraint ended_means_over check ((ended_at is not null) = (status in ('completed', 'failed', 'refused')))
) strict;
create index executions_listing_idx on executions(account_id, canvas_id, event_id desc);
create index executions_status_idx on executions(account_id, canvas_id, status, event_id desc);
create unique index executions_request_idx on executions(account_id, canvas_id, request_id)
  where request_id is not null;
create index executions_running_idx on executions(lease_until) where status = 'running';
create index executions_waiting_idx on executions(account_id, canvas_id, answer_until) where status = 'asked';
create index executions_ended_idx on executions(ended_at) where ended_at is not null;
create index executions_log_idx on executions(account_id, canvas_id, log_seq);

create table canvas_refreshes (
  account_id text not null, canvas_id text not null, refresh_id text not null, action_id text not null,
  every_ms integer not null,
  only_watched integer not null default 0 check (only_watched in (0, 1)),
  next_at integer not null, owner_id text, lease_until integer,
  failures integer not null default 0, error text,
  primary key (account_id, canvas_id, refresh_id),
  foreign key (account_id, canvas_id) references canvases(account_id, canvas_id) on delete cascade
) strict;
create index canvas_refreshes_due_idx on canvas_refreshes(next_at);

create table documents (
  account_id text not null, canvas_id text not null, session_id text not null, created_at integer not null,
  is_active integer not null default 1 check (is_active in (0, 1)),
  has_unreported integer not null default 0 check (has_unreported in (0, 1)),
  epoch integer not null default 0,
  lease_id text, lease_run_id text, lease_session_id text, lease_expires_at integer,
  interrupted_run_ids text not null default '',
  inspected text not null default '[]' constraint inspected_is_json check (json_valid(inspected)),
  primary key (account_id, canvas_id),
  foreign key (account_id, canvas_id) references canvases(account_id, canvas_id) on delete cascade,
  constraint lease_is_complete
    check ((lease_id is null) + (lease_run_id is null) + (lease_session_id is null)
           + (lease_expires_at is null) in (0, 4)),
  constraint leased_means_active check (is_active or lease_id is null),
  constraint epoch_from_zero check (epoch >= 0)
) strict;
create index documents_session_idx on documents(account_id, session_id, created_at desc, canvas_id desc)
  where is_active;
create index documents_unreported_idx on documents(account_id, session_id) where has_unreported and is_active;
create index documents_leased_idx on documents(lease_session_id, lease_run_id, account_id)
  where lease_id is not null;

create table document_drafts (
  account_id text not null, canvas_id text not null,
  draft_no integer not null constraint draft_no_from_one check (draft_no >= 1),
  text text not null, revision_id text not null,
  author_kind text not null constraint author_is_known check (author_kind in ('person', 'assistant')),
  author_id text not null, author_run_id text,
  is_closed integer not null default 0 check (is_closed in (0, 1)),
  is_versioned integer not null default 0 check (is_versioned in (0, 1)),
  is_reported integer not null default 0 check (is_reported in (0, 1)),
  primary key (account_id, canvas_id, draft_no),
  foreign key (account_id, canvas_id) references documents(account_id, canvas_id) on delete cascade,
  constraint reported_means_closed check (is_closed or not is_reported),
  constraint reported_means_versioned check (is_versioned or not is_reported)
) strict;

create table document_versions (
  account_id text not null, canvas_id text not null,
  version_no integer not null constraint version_no_from_one check (version_no >= 1),
  size integer not null constraint size_is_counted check (size >= 0),
  revision_id text not null,
  author_kind text not null constraint author_is_known check (author_kind in ('person', 'assistant')),
  author_id text not null, author_run_id text,
  created_at integer not null,
  -- The last column, so that a listing does not read it.
  text text not null,
  primary key (account_id, canvas_id, version_no),
  foreign key (account_id, canvas_id) references documents(account_id, canvas_id) on delete cascade
) strict;
create index document_versions_revision_idx on document_versions(revision_id, account_id, canvas_id);

create table artifacts (
  account_id text not null references accounts(account_id) on delete cascade,
  artifact_id text not null, size integer not null, media_type text not null,
  blob_key text not null unique,
  is_stored integer not null default 0 check (is_stored in (0, 1)),
  touched_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
  primary key (account_id, artifact_id)
) strict;

create table artifact_refs (
  account_id text not null, artifact_id text not null,
  run_id text references runs(run_id) on delete cascade,
  canvas_id text, mentioned_seq integer,
  foreign key (account_id, artifact_id) references artifacts(account_id, artifact_id),
  foreign key (account_id, canvas_id) references canvases(account_id, canvas_id) on delete cascade,
  constraint one_holder check ((run_id is null) <> (canvas_id is null))
) strict;
create index artifact_refs_artifact_idx on artifact_refs(account_id, artifact_id);
create unique index artifact_refs_run_idx on artifact_refs(account_id, artifact_id, run_id)
  where run_id is not null;
create unique index artifact_refs_canvas_idx on artifact_refs(account_id, artifact_id, canvas_id)
  where canvas_id is not null;
create index artifact_refs_of_run_idx on artifact_refs(run_id) where run_id is not null;
create index artifact_refs_mentioned_idx on artifact_refs(account_id, canvas_id, mentioned_seq)
  where canvas_id is not null;

create table account_totals (
  account_id text not null primary key references accounts(account_id) on delete cascade,
  stored_bytes integer not null default 0,
  token_day text not null default '', model_tokens integer not null default 0
) strict, without rowid;
create trigger artifact_added after insert on artifacts when new.is_stored begin
  insert into account_totals (account_id, stored_bytes) values (new.account_id, new.size)
  on conflict (account_id) do update set stored_bytes = stored_bytes + excluded.stored_bytes;
end;
create trigger artifact_changed after update of is_stored, size on artifacts
  when new.is_stored * new.size <> old.is_stored * old.size begin
  insert into account_totals (account_id, stored_bytes)
  values (new.account_id, new.is_stored * new.size - old.is_stored * old.size)
  on conflict (account_id) do update set stored_bytes = stored_bytes + excluded.stored_bytes;
end;
create trigger artifact_removed after delete on artifacts when old.is_stored begin
  update account_totals set stored_bytes = stored_bytes - old.size where account_id = old.account_id;
end;

create table usage_counts (
  subject text not null, instance_id text not null,
  requests integer not null, streams integer not null, actions integer not null,
  expires_at integer not null,
  primary key (subject, instance_id)
) strict, without rowid;

create table nodes (
  account_id text not null references accounts(account_id) on delete cascade,
  node_id text not null,
  user_id text not null,  -- who answers for the node
  connection_id text not null unique,
  instance_id text not null, version text not null, platform text not null,
  tools text not null, connected_at integer not null, expires_at integer not null,
  primary key (account_id, node_id)
) strict;

create table calls (
  call_id text not null primary key,
  account_id text not null references accounts(account_id) on delete cascade,
  target text not null, method text not null, params text not null,
  status text not null constraint call_status_is_known check (status in ('asked', 'taken', 'answered')),
  answer text, deadline integer not null,
  heard_until integer not null default 9223372036854775807, cancelled_at integer,
  constraint answered_means_answer check ((answer is not null) = (status = 'answered'))
) strict;
create index calls_target_idx on calls(target) where status <> 'answered';
create index calls_deadline_idx on calls(deadline);

create table account_orders (
  account_id text not null primary key references accounts(account_id) on delete cascade,
  oldest_seq integer not null default 1, last_seq integer not null default 0,
  followed_until integer,
  is_complete integer not null default 0 check (is_complete in (0, 1)),
  constraint complete_means_followed check (followed_until is not null or not is_complete),
  constraint seq_in_order check (oldest_seq >= 1 and last_seq >= 0 and oldest_seq <= last_seq + 1)
) strict;
create index account_orders_followed_idx on account_orders(followed_until) where followed_until is not null;

create table unordered_appends (
  append_no integer not null primary key,
  appends text not null
) strict;
create table order_head (only_row integer not null primary key default 1 check (only_row = 1)) strict;
insert into order_head values (1);

-- Store the appends to the logs of followed accounts, which on Postgres the appending statements do.
create trigger run_appended after update of last_seq on runs
when new.last_seq > old.last_seq and exists
  (select 1 from account_orders where account_id = new.account_id and followed_until is not null)
begin
  insert into unordered_appends (appends)
  values (json_array(json_array(new.account_id, 'run', new.run_id, old.last_seq + 1, new.last_seq)));
end;
create trigger canvas_appended after update of last_seq on canvases
when new.last_seq > old.last_seq and exists
  (select 1 from account_orders where account_id = new.account_id and followed_until is not null)
begin
  insert into unordered_appends (appends)
  values (json_array(json_array(new.account_id, 'canvas', new.canvas_id, old.last_seq + 1, new.last_seq)));
end;
create trigger canvas_created after insert on canvases
when exists (select 1 from account_orders where account_id = new.account_id and followed_until is not null)
begin
  insert into unordered_appends (appends)
  values (json_array(json_array(new.account_id, 'canvas', new.canvas_id, new.last_seq, new.last_seq)));
end;

create table ordered_appends (
  account_id text not null references account_orders(account_id) on delete cascade,
  server_seq integer not null,
  log_type text not null constraint log_type_is_known check (log_type in ('run', 'canvas', 'account')),
  log_id text not null, first_seq integer not null, last_seq integer not null,
  primary key (account_id, server_seq),
  constraint append_has_events check (first_seq <= last_seq)
) strict, without rowid;
create trigger account_append_is_ordered after insert on account_events begin
  insert into unordered_appends (appends)
  select json_array(json_array(account_id, 'account', account_id, new.seq, new.seq))
    from account_orders where account_id = new.account_id and followed_until is not null;
end;

create table audit (
  seq integer not null primary key,
  account_id text not null, at integer not null,
  storage_class text not null constraint class_is_known check (storage_class in ('ops', 'audit')),
  action text not null, record text not null, hash text not null
) strict;
create index audit_account_idx on audit(account_id, seq);
create index audit_action_idx on audit(account_id, action, seq);
create table audit_head (
  only_row integer not null primary key default 1 check (only_row = 1),
  last_seq integer not null, last_hash text not null
) strict, without rowid;
insert into audit_head (last_seq, last_hash) values (0, '');
create table audit_checkpoint (
  only_row integer not null primary key default 1 check (only_row = 1),
  seq integer not null constraint seq_from_one check (seq >= 1),
  hash text not null, signature text not null
) strict, without rowid;

create table sweeps (
  name text not null primary key,
  next_at integer not null
) strict;

create table probes (
  only_row integer not null primary key default 1 check (only_row = 1),
  probed_at integer not null
) strict, without rowid;
