-- Add documents with their leases, drafts and versions, and hidden messages. Older code keeps working: it
-- neither reads nor writes them. Times are whole microseconds since 1970, UTC.

-- The document of a canvas of mode `markdown`. Its text is that of the newest draft, or empty.
create table documents (
  account_id text not null,
  canvas_id text not null,
  -- The session that owns the canvas.
  session_id text not null,
  -- When the canvas was created: the newest document of a session is the session's document.
  created_at integer not null,
  -- Whether the canvas has the mode `markdown` now. The text of a canvas that changed its mode is kept.
  is_active integer not null default 1 check (is_active in (0, 1)),
  -- Whether a draft of the document is not reported by a hidden message.
  has_unreported integer not null default 0 check (has_unreported in (0, 1)),
  -- Raised whenever the user interrupts the assistant.
  epoch integer not null default 0,
  -- The run that may write to the document, and until when.
  lease_id text,
  lease_run_id text,
  lease_session_id text,
  lease_expires_at integer,
  -- The runs that a person has taken the document from, separated by spaces. A message and a cancel are
  -- not noted here: the runs show them.
  interrupted_run_ids text not null default '',
  -- The lines that the holder of the lease was shown, as [first, last] pairs.
  inspected text not null default '[]' constraint inspected_is_json check (json_valid(inspected)),
  primary key (account_id, canvas_id),
  foreign key (account_id, canvas_id) references canvases(account_id, canvas_id) on delete cascade,
  constraint lease_is_complete check ((lease_id is null) + (lease_run_id is null) + (lease_session_id is null) + (lease_expires_at is null) in (0, 4)),
  constraint leased_means_active check (is_active or lease_id is null),
  constraint epoch_from_zero check (epoch >= 0)
) strict;
create index documents_session_idx on documents(account_id, session_id, created_at desc, canvas_id desc) where is_active;
create index documents_unreported_idx on documents(account_id, session_id) where has_unreported and is_active;
-- Few rows. lease_expires_at is left out on purpose, so that a renewal writes no index.
create index documents_leased_idx on documents(lease_session_id, lease_run_id, account_id) where lease_id is not null;

-- The texts that authors left, in order. Of the reported drafts only the newest is kept, as the base of the next.
create table artefact_drafts (
  account_id text not null,
  canvas_id text not null,
  draft_no integer not null constraint draft_no_from_one check (draft_no >= 1),
  text text not null,
  revision_id text not null,
  -- The revision of the draft before, or of the empty text.
  base_revision_id text not null,
  author_kind text not null constraint author_is_known check (author_kind in ('person', 'assistant')),
  author_id text not null,
  author_run_id text,
  -- Whether a report of the draft is being made, so that a later text of its author is another draft.
  is_closed integer not null default 0 check (is_closed in (0, 1)),
  -- Whether the text is a version, or equals the version before. The drafts of which it is true come first.
  is_versioned integer not null default 0 check (is_versioned in (0, 1)),
  -- Whether a hidden message reports the draft.
  is_reported integer not null default 0 check (is_reported in (0, 1)),
  updated_at integer not null,
  primary key (account_id, canvas_id, draft_no),
  foreign key (account_id, canvas_id) references documents(account_id, canvas_id) on delete cascade,
  constraint reported_means_closed check (is_closed or not is_reported),
  constraint reported_means_versioned check (is_versioned or not is_reported)
) strict;

-- The versions of documents.
create table artefacts (
  account_id text not null,
  canvas_id text not null,
  version_no integer not null constraint version_no_from_one check (version_no >= 1),
  -- Bytes of the text.
  size integer not null constraint size_is_counted check (size >= 0),
  revision_id text not null,
  author_kind text not null constraint author_is_known check (author_kind in ('person', 'assistant')),
  author_id text not null,
  author_run_id text,
  created_at integer not null,
  -- The last column, so that a listing does not read it.
  text text not null,
  primary key (account_id, canvas_id, version_no),
  foreign key (account_id, canvas_id) references documents(account_id, canvas_id) on delete cascade
) strict;
create index artefacts_revision_idx on artefacts(revision_id, account_id, canvas_id);

-- Messages of role user that only the model reads. A table of its own: older code would show a row of
-- `messages`.
create table hidden_messages (
  run_id text not null references runs(run_id) on delete cascade,
  hidden_no integer not null constraint hidden_no_from_one check (hidden_no >= 1),
  message_id text not null,
  content text not null constraint content_is_json check (json_valid(content)),
  -- Whether the message follows the answer of the run; else it precedes the user's message.
  follows_answer integer not null check (follows_answer in (0, 1)),
  created_at integer not null,
  primary key (run_id, hidden_no)
) strict;

insert into documents (account_id, canvas_id, session_id, created_at)
select account_id, canvas_id, iif(substr(session_key, 1, 11) = 'agent:main:', substr(session_key, 12), session_key), created_at
  from (select *, coalesce(owner_session_key, 'agent:' || agent_id || ':main') as session_key from canvases)
 where json_extract(spec, '$.mode') = 'markdown' and deleted_at is null;
