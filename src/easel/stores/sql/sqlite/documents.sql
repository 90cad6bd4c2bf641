-- name: open_document
-- Create or update the document of a canvas of mode `markdown`. Without effect for another canvas.
insert into documents (account_id, canvas_id, session_id, created_at)
select account_id, canvas_id,
       iif(substr(session_key, 1, 11) = 'agent:main:', substr(session_key, 12), session_key), created_at
  from (select *, coalesce(owner_session_key, 'agent:' || agent_id || ':' || 'main') as session_key
          from canvases
         where account_id = :account_id and canvas_id = :canvas_id and deleted_at is null)
 where json_extract(spec, '$.mode') = 'markdown'
on conflict (account_id, canvas_id) do update set session_id = excluded.session_id, is_active = 1
returning canvas_id;

-- name: rt_get_canvas_v1
-- Return a document with its text, its lease and its newest version. CT-33, RS-51
select d.account_id, d.canvas_id, d.session_id, d.epoch, d.lease_id, d.lease_run_id, d.lease_session_id,
       d.lease_expires_at, d.interrupted_run_ids, d.inspected, c.revision as canvas_revision, c.last_seq,
       n.text, n.revision_id,
       (select a.revision_id from document_versions a
         where a.account_id = d.account_id and a.canvas_id = d.canvas_id
         order by a.version_no desc limit 1) as version_revision_id,
       :now as read_at
  from documents d
  join canvases c on c.account_id = d.account_id and c.canvas_id = d.canvas_id and c.deleted_at is null
  left join document_drafts n
    on n.account_id = d.account_id and n.canvas_id = d.canvas_id
   and n.draft_no = (select max(draft_no) from document_drafts l
                      where l.account_id = d.account_id and l.canvas_id = d.canvas_id)
 where d.account_id = :account_id and d.canvas_id = :canvas_id and d.is_active;

-- name: list_newest_documents
-- Return the newest documents whose canvas belongs to the session.
select canvas_id from documents indexed by documents_session_idx
 where account_id = :account_id and session_id = :session_id and is_active
 order by created_at desc, canvas_id desc limit :limit;

-- name: read_claimed_run
-- Return a run if the worker still holds the claim of its attempt, and whether the user has cancelled it, or
-- sent a later message in its session or in that of the document. RX-13, CT-19, RS-79
select cancel_requested_at is not null or
       exists (select 1 from runs l indexed by runs_session_idx
                where l.account_id = r.account_id and l.queue_no > r.queue_no
                  and l.session_id in (r.session_id, (select d.session_id from documents d
                                                       where d.account_id = :account_id
                                                         and d.canvas_id = :canvas_id)))
         as is_interrupted
  from runs r
 where run_id = :run_id and account_id = :account_id and owner_id = :worker_id and attempt = :attempt
   and status = 'running' and lease_until > :lease_now;

-- name: change_document
-- Store the lease of a document, the lines that its holder was shown, and whether it has a new text.
update documents
   set epoch = :epoch, lease_id = :lease_id, lease_run_id = :lease_run_id,
       lease_session_id = :lease_session_id, lease_expires_at = :lease_expires_at,
       interrupted_run_ids = :interrupted_run_ids, inspected = :inspected,
       has_unreported = has_unreported or :has_new_text
 where account_id = :account_id and canvas_id = :canvas_id;

-- name: rt_save_artefact_draft
-- Store a text. It replaces the newest draft if that is of the same author and is not closed. CT-33, RS-51
insert into document_drafts (account_id, canvas_id, draft_no, text, revision_id, author_kind,
                             author_id, author_run_id)
select :account_id, :canvas_id, coalesce(max(n.draft_no), 0)
         + coalesce(n.is_closed or n.author_kind <> :author_kind or n.author_id <> :author_id
                    or n.author_run_id is not :author_run_id, 1),
       :text, :revision_id, :author_kind, :author_id, :author_run_id
  from document_drafts n where n.account_id = :account_id and n.canvas_id = :canvas_id
on conflict (account_id, canvas_id, draft_no) do update
  set text = excluded.text, revision_id = excluded.revision_id, is_versioned = 0;

-- name: rt_append_node_to_ref_v1
-- Make the drafts up to a number versions, each if its hash differs from the version before: those that a
-- run's batch reports, in the transaction of the batch, or all when a person promotes. CT-34, CT-35, RS-51
insert into document_versions (account_id, canvas_id, version_no, text, size, revision_id, author_kind,
                               author_id, author_run_id, created_at)
select account_id, canvas_id,
       coalesce((select max(version_no) from document_versions
                  where account_id = :account_id and canvas_id = :canvas_id), 0)
         + row_number() over (order by draft_no),
       text, length(cast(text as blob)), revision_id, author_kind, author_id, author_run_id, :now
  from (select *,
               lag(revision_id, 1, (select revision_id from document_versions
                                     where account_id = :account_id and canvas_id = :canvas_id
                                     order by version_no desc limit 1)) over (order by draft_no) as previous
          from document_drafts
         where account_id = :account_id and canvas_id = :canvas_id and draft_no <= :draft_no
           and not is_versioned)
 where revision_id is not previous;

-- name: end_leases
-- End the leases of one run, or those that runs of a session hold or that are of documents of the session,
-- because the user acted. CT-18, RS-79
update documents
   set epoch = epoch + 1, inspected = '[]', lease_id = null,
       lease_run_id = null, lease_session_id = null, lease_expires_at = null
 where rowid in (select rowid from documents indexed by documents_leased_idx
                  where lease_id is not null and :session_id in (lease_session_id, session_id)
                    and account_id = :account_id and (:run_id is null or lease_run_id = :run_id))
returning canvas_id, epoch;

-- name: renew_leases
-- Extend the leases of these runs that have not expired. CT-14
update documents set lease_expires_at = :now + make_interval(secs => :seconds)
 where rowid in (select rowid from documents indexed by documents_leased_idx
                  where lease_id is not null and lease_run_id in (select value from json_each(:run_ids))
                    and lease_expires_at > :now);

-- name: release_leases
-- End the leases of a run that has ended, unless a later attempt of it has begun. The epoch stays. CT-16
update documents
   set inspected = '[]', lease_id = null, lease_run_id = null, lease_session_id = null,
       lease_expires_at = null
 where rowid in (select rowid from documents indexed by documents_leased_idx
                  where lease_id is not null and lease_run_id = :run_id)
   and exists (select 1 from runs where run_id = :run_id and attempt <= :attempt)
returning account_id, canvas_id, epoch;

-- name: list_expired_leases
-- List documents whose lease has expired.
select account_id, canvas_id from documents indexed by documents_leased_idx
 where lease_id is not null and lease_expires_at <= :now limit :limit;

-- name: list_unreported_drafts
-- Return the drafts of a session's documents that no hidden message reports, each with the text before.
select * from (
  select n.canvas_id, n.draft_no, n.text, n.author_kind, n.author_id, n.author_run_id, n.is_closed,
         n.is_reported, d.created_at,
         lag(n.text, 1, '') over (partition by n.canvas_id order by n.draft_no) as before
    from documents d indexed by documents_unreported_idx
    cross join document_drafts n on n.account_id = d.account_id and n.canvas_id = d.canvas_id
   where d.account_id = :account_id and d.session_id = :session_id and d.has_unreported and d.is_active)
 where not is_reported order by created_at, canvas_id, draft_no;

-- name: read_revision
-- Return the text of the current draft or of a version by its revision.
select text from (
  select text, 0 as nth from document_drafts
   where account_id = :account_id and canvas_id = :canvas_id and revision_id = :revision_id
     and draft_no = (select max(draft_no) from document_drafts
                      where account_id = :account_id and canvas_id = :canvas_id)
  union all
  select text, 1 from document_versions indexed by document_versions_revision_idx
   where account_id = :account_id and canvas_id = :canvas_id and revision_id = :revision_id)
 where
   -- include: document_is_active
 order by nth limit 1;
