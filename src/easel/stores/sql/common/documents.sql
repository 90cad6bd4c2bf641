-- name: close_document
-- Keep the text of a canvas that is deleted or changes its mode. No run can write to it from then on.
update documents
   set is_active = false, epoch = epoch + 1, inspected = '[]', lease_id = null, lease_run_id = null,
       lease_session_id = null, lease_expires_at = null
 where account_id = :account_id and canvas_id = :canvas_id and is_active;

-- name: lock_document
-- Lock a canvas and then its document until the transaction ends.
with canvas as (
  select 1 from canvases where account_id = :account_id and canvas_id = :canvas_id for update
)
select 1 from documents
 where account_id = :account_id and canvas_id = :canvas_id and (select count(*) from canvas) >= 0
   for update;

-- name: compare_hashes
-- Return the hashes of the newest draft and of the newest version. CT-35
select (select revision_id from document_drafts
         where account_id = :account_id and canvas_id = :canvas_id
         order by draft_no desc limit 1) as draft_hash,
       (select revision_id from document_versions
         where account_id = :account_id and canvas_id = :canvas_id
         order by version_no desc limit 1) as artefact_hash;

-- name: mark_versioned
-- Mark the drafts up to a number as versions.
update document_drafts set is_versioned = true
 where account_id = :account_id and canvas_id = :canvas_id and draft_no <= :draft_no and not is_versioned;

-- name: mark_reported
-- Mark the drafts up to a number, which are versions, as reported by a hidden message.
update document_drafts set is_closed = true, is_reported = true
 where account_id = :account_id and canvas_id = :canvas_id and draft_no <= :draft_no and not is_reported;

-- name: note_unreported
-- Store whether a draft of a document is not reported. Requires the lock of the document.
update documents as d
   set has_unreported = exists (select 1 from document_drafts n
                                 where n.account_id = d.account_id and n.canvas_id = d.canvas_id
                                   and not n.is_reported)
 where account_id = :account_id and canvas_id = :canvas_id;

-- name: delete_reported_drafts
-- Delete the reported drafts except the newest, which is the base of the next draft.
delete from document_drafts
 where account_id = :account_id and canvas_id = :canvas_id and is_reported
   and draft_no < (select max(draft_no) from document_drafts
                    where account_id = :account_id and canvas_id = :canvas_id and is_reported);

-- name: trim_versions
-- Delete the oldest versions, so that `max_versions` are left.
delete from document_versions
 where account_id = :account_id and canvas_id = :canvas_id
   and version_no <= (select max(version_no) from document_versions
                       where account_id = :account_id and canvas_id = :canvas_id) - :max_versions::bigint;

-- name: close_drafts
-- Close the drafts of a document that are not reported, so that later texts are other drafts.
update document_drafts set is_closed = true
 where account_id = :account_id and canvas_id = :canvas_id and not is_reported and not is_closed;

-- define: document_is_active
-- Whether the document exists for its account.
exists (select 1 from documents d join canvases c on c.account_id = d.account_id and c.canvas_id = d.canvas_id
         where d.account_id = :account_id and d.canvas_id = :canvas_id and d.is_active
           and c.deleted_at is null);

-- name: list_versions
-- Return a page of versions, newest first.
select v.version_no, v.revision_id, v.author_kind, v.author_id, v.author_run_id, v.created_at, v.size
  from document_versions v
 where v.account_id = :account_id and v.canvas_id = :canvas_id and v.version_no < :before
   and
   -- include: document_is_active
 order by v.version_no desc limit :limit;
