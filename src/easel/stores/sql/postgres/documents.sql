-- name: open_document
-- Create or update the document of a canvas of mode `markdown`. Without effect for another canvas. Requires
-- the lock of the canvas, or that its row was stored by this transaction.
insert into documents (account_id, canvas_id, session_id, created_at)
select account_id, canvas_id,
       regexp_replace(coalesce(owner_session_key, 'agent:' || agent_id || ':' || 'main'), '^agent:main:', ''),
       created_at
  from canvases
 where account_id = :account_id and canvas_id = :canvas_id
   and deleted_at is null and spec->>'mode' = 'markdown'
on conflict (account_id, canvas_id) do update set session_id = excluded.session_id, is_active = true
returning canvas_id;

-- name: lock_sessions
-- Lock the session of a claim and that of the document, so that no message arrives during a change. RS-79
select 1 from sessions
 where account_id = :account_id
   and session_id in (:session_id, (select d.session_id from documents d
                                     where d.account_id = :account_id and d.canvas_id = :canvas_id))
 order by session_id for update;

-- name: lock_claimed_run
-- Lock a run if the worker still holds the claim of its attempt. Returns whether the user has cancelled the
-- run, or sent a later message in its session or in that of the document. RX-13, CT-19, RS-79
select cancel_requested_at is not null
         or (select 1 from runs l
              where l.account_id = r.account_id and l.queue_no > r.queue_no
                and l.session_id in (r.session_id, (select d.session_id from documents d
                                                     where d.account_id = :account_id
                                                       and d.canvas_id = :canvas_id))
              limit 1) is not null as is_interrupted
  from runs r
 where run_id = :run_id and account_id = :account_id and owner_id = :worker_id and attempt = :attempt
   and status = 'running' and lease_until > clock_timestamp()
   for share;

-- name: rt_get_canvas_v1
-- Return a document with its text, its lease and its newest version. CT-33, RS-51
select d.account_id, d.canvas_id, d.session_id, d.epoch, d.lease_id, d.lease_run_id, d.lease_session_id,
       d.lease_expires_at, d.interrupted_run_ids, d.inspected::text as inspected,
       c.revision as canvas_revision, c.last_seq, n.text, n.revision_id,
       (select a.revision_id from document_versions a
         where a.account_id = d.account_id and a.canvas_id = d.canvas_id
         order by a.version_no desc limit 1) as version_revision_id,
       clock_timestamp() as read_at
  from documents d
  join canvases c on c.account_id = d.account_id and c.canvas_id = d.canvas_id and c.deleted_at is null
  left join lateral (select l.text, l.revision_id from document_drafts l
                      where l.account_id = d.account_id and l.canvas_id = d.canvas_id
                      order by l.draft_no desc limit 1) n on true
 where d.account_id = :account_id and d.canvas_id = :canvas_id and d.is_active;

-- name: list_newest_documents
-- Return the newest documents whose canvas belongs to the session.
select canvas_id from documents
 where account_id = :account_id and session_id = :session_id and is_active
 order by created_at desc, canvas_id desc limit :limit;

-- define: take_positions
-- Take log positions for events of a canvas, whose revision stays.
grown as (
  update canvases set last_seq = last_seq + cardinality(:event_types::text[])
   where account_id = :account_id and canvas_id = :canvas_id and cardinality(:event_types::text[]) > 0
  returning account_id, canvas_id, last_seq
);

-- name: append_document_events
-- Append events to the log of a canvas, whose revision stays. Requires the lock of the canvas.
with
  -- include: take_positions
,
  -- include: append_canvas_events
select from grown;

-- name: change_document
-- Store the lease of a document, the lines that its holder was shown, and whether it has a new text. Appends
-- events to the log of its canvas, whose revision stays. Requires the locks of the canvas and the document.
with changed as (
  update documents
     set epoch = :epoch, lease_id = :lease_id, lease_run_id = :lease_run_id,
         lease_session_id = :lease_session_id, lease_expires_at = :lease_expires_at,
         interrupted_run_ids = :interrupted_run_ids, inspected = :inspected::text::jsonb,
         has_unreported = has_unreported or :has_new_text
   where account_id = :account_id and canvas_id = :canvas_id
),
  -- include: take_positions
,
  -- include: append_canvas_events
select from grown;

-- name: rt_save_artefact_draft
-- Store a text. It replaces the newest draft if that is of the same author and is not closed. Requires the
-- lock of the document. CT-33, RS-51
with newest as (
  select draft_no,
         is_closed or (author_kind, author_id, author_run_id)
           is distinct from (:author_kind::text, :author_id::text, :author_run_id::text) as is_other
    from document_drafts
   where account_id = :account_id and canvas_id = :canvas_id order by draft_no desc limit 1
)
insert into document_drafts (account_id, canvas_id, draft_no, text, revision_id, author_kind,
                             author_id, author_run_id)
values (:account_id, :canvas_id, coalesce((select draft_no + is_other::int from newest), 1), :text,
        :revision_id, :author_kind, :author_id, :author_run_id)
on conflict (account_id, canvas_id, draft_no) do update
  set text = excluded.text, revision_id = excluded.revision_id, is_versioned = false;

-- name: rt_append_node_to_ref_v1
-- Make the drafts up to a number versions, each if its hash differs from the version before: those that a
-- run's batch reports, in the transaction of the batch, or all when a person promotes. Requires the lock of
-- the document. CT-34, CT-35, RS-51
with newest as (
  select version_no, revision_id from document_versions
   where account_id = :account_id and canvas_id = :canvas_id order by version_no desc limit 1
), due as (
  select *, lag(revision_id, 1, (select revision_id from newest)) over (order by draft_no) as previous
    from document_drafts
   where account_id = :account_id and canvas_id = :canvas_id and draft_no <= :draft_no and not is_versioned
)
insert into document_versions (account_id, canvas_id, version_no, text, size, revision_id, author_kind,
                               author_id, author_run_id)
select account_id, canvas_id,
       coalesce((select version_no from newest), 0) + row_number() over (order by draft_no),
       text, octet_length(text), revision_id, author_kind, author_id, author_run_id
  from due where revision_id is distinct from previous;

-- name: end_leases
-- End the leases of a run that the user cancelled. Requires the lock of the session. CT-18
select end_leases(:account_id::text, :session_id::text, :run_id::text, :run_id, :payload::text) as canvas_ids;

-- name: renew_leases
-- Extend the leases of these runs that have not expired. Rows that another transaction has locked are
-- skipped: that transaction renews or ends the lease itself, or the next activity renews it. CT-14
with live as (
  select account_id, canvas_id from documents
   where lease_id is not null and lease_run_id = any(:run_ids::text[])
     and lease_expires_at > clock_timestamp()
     for update skip locked
)
update documents d set lease_expires_at = clock_timestamp() + make_interval(secs => :seconds)
  from live where d.account_id = live.account_id and d.canvas_id = live.canvas_id;

-- name: list_leases_of_run
-- List the documents that a run has a lease of, in the order in which they are locked.
select account_id, canvas_id from documents
 where lease_id is not null and lease_run_id = :run_id order by account_id, canvas_id collate "C";

-- name: release_lease
-- End the lease of a run that has ended, unless a later attempt of it has begun. The epoch stays. Requires
-- the locks of the canvas and the document. CT-16
update documents d
   set inspected = '[]', lease_id = null, lease_run_id = null, lease_session_id = null,
       lease_expires_at = null
  from canvases c
 where d.account_id = :account_id and d.canvas_id = :canvas_id and d.lease_run_id = :run_id
   and c.account_id = :account_id and c.canvas_id = :canvas_id
   and exists (select from runs r where r.run_id = :run_id and r.attempt <= :attempt)
returning d.epoch, c.revision;

-- name: list_expired_leases
-- List documents whose lease has expired.
select account_id, canvas_id from documents
 where lease_id is not null and lease_expires_at <= clock_timestamp() limit :limit;

-- name: list_unreported_drafts
-- Return the drafts of a session's documents that no hidden message reports, each with the text before.
select * from (
  select n.canvas_id, n.draft_no, n.text, n.author_kind, n.author_id, n.author_run_id, n.is_closed,
         n.is_reported, d.created_at,
         lag(n.text, 1, ''::text) over (partition by n.canvas_id order by n.draft_no) as before
    from documents d
    join document_drafts n on n.account_id = d.account_id and n.canvas_id = d.canvas_id
   where d.account_id = :account_id and d.session_id = :session_id and d.has_unreported and d.is_active) u
 where not is_reported order by created_at, canvas_id, draft_no;

-- name: read_revision
-- Return the text of the current draft or of a version by its revision.
select text
  from (select text, 0 as nth from document_drafts
         where account_id = :account_id and canvas_id = :canvas_id and revision_id = :revision_id
           and draft_no = (select max(draft_no) from document_drafts
                            where account_id = :account_id and canvas_id = :canvas_id)
        union all
        (select text, 1 from document_versions
          where account_id = :account_id and canvas_id = :canvas_id and revision_id = :revision_id
          limit 1)) found
 where
   -- include: document_is_active
 order by nth limit 1;
