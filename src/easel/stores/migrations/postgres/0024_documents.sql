-- Add documents with their leases, drafts and versions, and hidden messages. Older code keeps working: it
-- neither reads nor writes them.

-- The document of a canvas of mode `markdown`. Its text is that of the newest draft, or empty.
create table documents (
  account_id text not null,
  canvas_id text not null,
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
  lease_id text,
  lease_run_id text,
  lease_session_id text,
  lease_expires_at timestamptz,
  -- The runs that a person has taken the document from, separated by spaces. A message and a cancel are
  -- not noted here: the runs show them.
  interrupted_run_ids text not null default '',
  -- The lines that the holder of the lease was shown, as [first, last] pairs.
  inspected jsonb not null default '[]',
  primary key (account_id, canvas_id),
  foreign key (account_id, canvas_id) references canvases(account_id, canvas_id) on delete cascade,
  constraint lease_is_complete check (num_nulls(lease_id, lease_run_id, lease_session_id, lease_expires_at) in (0, 4)),
  constraint leased_means_active check (is_active or lease_id is null),
  constraint epoch_from_zero check (epoch >= 0)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
create index documents_session_idx on documents(account_id, session_id, created_at desc, canvas_id desc) where is_active;
create index documents_unreported_idx on documents(account_id, session_id) where has_unreported and is_active;
-- Few rows. lease_expires_at is left out on purpose, so that a renewal writes no index.
create index documents_leased_idx on documents(lease_session_id, lease_run_id, account_id) where lease_id is not null;

-- The texts that authors left, in order. Of the reported drafts only the newest is kept, as the base of the next.
create table artefact_drafts (
  account_id text not null,
  canvas_id text not null,
  draft_no bigint not null constraint draft_no_from_one check (draft_no >= 1),
  text text not null,
  revision_id text not null,
  -- The revision of the draft before, or of the empty text.
  base_revision_id text not null,
  author_kind text not null constraint author_is_known check (author_kind in ('person', 'assistant')),
  author_id text not null,
  author_run_id text,
  -- Whether a report of the draft is being made, so that a later text of its author is another draft.
  is_closed boolean not null default false,
  -- Whether the text is a version, or equals the version before. The drafts of which it is true come first.
  is_versioned boolean not null default false,
  -- Whether a hidden message reports the draft.
  is_reported boolean not null default false,
  updated_at timestamptz not null default clock_timestamp(),
  primary key (account_id, canvas_id, draft_no),
  foreign key (account_id, canvas_id) references documents(account_id, canvas_id) on delete cascade,
  constraint reported_means_closed check (is_closed or not is_reported),
  constraint reported_means_versioned check (is_versioned or not is_reported)
);

-- The versions of documents.
create table artefacts (
  account_id text not null,
  canvas_id text not null,
  version_no bigint not null constraint version_no_from_one check (version_no >= 1),
  text text not null,
  -- Bytes of the text.
  size bigint not null constraint size_is_counted check (size >= 0),
  revision_id text not null,
  author_kind text not null constraint author_is_known check (author_kind in ('person', 'assistant')),
  author_id text not null,
  author_run_id text,
  created_at timestamptz not null default clock_timestamp(),
  primary key (account_id, canvas_id, version_no),
  foreign key (account_id, canvas_id) references documents(account_id, canvas_id) on delete cascade
);
create index artefacts_revision_idx on artefacts(revision_id, account_id, canvas_id);

-- Messages of role user that only the model reads. A table of its own: older code would show a row of
-- `messages`.
create table hidden_messages (
  run_id text not null references runs(run_id) on delete cascade,
  hidden_no integer not null constraint hidden_no_from_one check (hidden_no >= 1),
  message_id text not null,
  content jsonb not null,
  -- Whether the message follows the answer of the run; else it precedes the user's message.
  follows_answer boolean not null,
  created_at timestamptz not null default clock_timestamp(),
  primary key (run_id, hidden_no)
);

insert into documents (account_id, canvas_id, session_id, created_at)
select account_id, canvas_id, regexp_replace(coalesce(owner_session_key, 'agent:' || agent_id || ':main'), '^agent:main:', ''),
       created_at
  from canvases where spec->>'mode' = 'markdown' and deleted_at is null;

-- End the leases that runs of a session hold, or those of one run, because the user acted: raise the epoch and
-- append an event to the log of each canvas. Returns the canvases, or null. The caller has locked the session.
-- A function, because it is called by the statement that enqueues a run: each statement in it sees what was
-- committed while the caller waited for the session, such as a lease.
create function end_leases(for_user text, for_session text, for_run text, by_run text, event text) returns text[]
language plpgsql as $$
declare
  leased record;
  place record;
  raised bigint;
  ended text[];
begin
  for leased in
    select canvas_id from documents
     where lease_id is not null and lease_session_id = for_session and account_id = for_user
       and (for_run is null or lease_run_id = for_run)
     order by canvas_id collate "C"  -- as the other transactions that lock several documents
  loop
    perform from canvases where account_id = for_user and canvas_id = leased.canvas_id for update;
    update documents
       set epoch = epoch + 1, inspected = '[]', lease_id = null,
           lease_run_id = null, lease_session_id = null, lease_expires_at = null
     where account_id = for_user and canvas_id = leased.canvas_id and lease_session_id = for_session
       and (for_run is null or lease_run_id = for_run)
    returning epoch into raised;
    continue when not found;
    update canvases set last_seq = last_seq + 1 where account_id = for_user and canvas_id = leased.canvas_id
    returning last_seq, revision into place;
    insert into canvas_events (account_id, canvas_id, seq, event_type, visibility, payload, created_at)
    values (for_user, leased.canvas_id, place.last_seq, 'canvas.lease.changed', 'public',
            event::jsonb || jsonb_build_object(
              'canvasId', leased.canvas_id, 'revision', place.revision, 'canvas_epoch', raised,
              'provenance', event::jsonb->'provenance'
                || jsonb_build_object('agent_id', for_user, 'run_id', by_run)),
            clock_timestamp());
    ended := ended || leased.canvas_id;
  end loop;
  return ended;
end $$;
