-- name: next_deleted_session
-- Return the session that was deleted first and still has rows, and lock it. Sessions that another
-- transaction has locked are skipped.
select account_id, session_id from sessions where deleted_at is not null
 order by deleted_at limit 1
   for update skip locked;

-- name: find_deleted_session
-- Lock a session that is deleted and still has rows.
select account_id, session_id from sessions
 where account_id = :account_id and session_id = :session_id and deleted_at is not null
   for update;

-- name: list_runs_to_purge
-- List some runs of a deleted session.
select run_id from runs where account_id = :account_id and session_id = :session_id limit :limit;

-- name: purge_boards
-- Delete some board values of these runs.
delete from boards
 where ctid = any(array(select ctid from boards
                         where run_id = any(:run_ids::text[]) limit :limit))
returning 1;

-- name: purge_run_references
-- Delete some artifact references of these runs.
delete from artifact_refs
 where ctid = any(array(select ctid from artifact_refs
                         where run_id = any(:run_ids::text[]) limit :limit))
returning 1;

-- name: purge_runs
-- Delete runs whose events, board values and references are deleted.
delete from runs where run_id = any(:run_ids::text[]);

-- name: purge_messages
-- Delete some messages of a deleted session.
delete from messages
 where ctid = any(array(select ctid from messages
                         where account_id = :account_id and session_id = :session_id limit :limit))
returning 1;

-- name: end_thread
-- Store the last thread position of a deleted session, so that a new session of the same id continues from
-- it.
insert into ended_threads (account_id, session_id, last_thread_seq)
select account_id, session_id, last_thread_seq from sessions
 where account_id = :account_id and session_id = :session_id and last_thread_seq > 0
on conflict (account_id, session_id) do update set last_thread_seq = excluded.last_thread_seq;

-- name: delete_session
-- Delete a session whose other rows are deleted.
delete from sessions where account_id = :account_id and session_id = :session_id;

-- name: next_deleted_canvas
-- Return the canvas that was deleted first and still has rows, and lock it. Canvases that another
-- transaction has locked are skipped.
select account_id, canvas_id from canvases where deleted_at is not null
 order by deleted_at limit 1
   for update skip locked;

-- name: find_deleted_canvas
-- Lock a canvas that is deleted and still has rows.
select account_id, canvas_id from canvases
 where account_id = :account_id and canvas_id = :canvas_id and deleted_at is not null
   for update;

-- name: purge_canvas_references
-- Delete some artifact references of a deleted canvas.
delete from artifact_refs
 where ctid = any(array(select ctid from artifact_refs
                         where account_id = :account_id and canvas_id = :canvas_id limit :limit))
returning 1;

-- name: purge_versions
-- Delete some versions of the document of a deleted canvas.
delete from document_versions
 where ctid = any(array(select ctid from document_versions
                         where account_id = :account_id and canvas_id = :canvas_id limit :limit))
returning 1;

-- name: purge_canvas_versions
-- Delete some versions of a deleted canvas.
delete from canvas_versions
 where ctid = any(array(select ctid from canvas_versions
                         where account_id = :account_id and canvas_id = :canvas_id limit :limit))
returning 1;

-- name: purge_drafts
-- Delete some drafts of the document of a deleted canvas.
delete from document_drafts
 where ctid = any(array(select ctid from document_drafts
                         where account_id = :account_id and canvas_id = :canvas_id limit :limit))
returning 1;

-- name: end_canvas
-- Store the last log position of a deleted canvas, so that a new canvas of the same id continues from it.
insert into ended_canvases (account_id, canvas_id, last_seq)
select account_id, canvas_id, last_seq from canvases where account_id = :account_id and canvas_id = :canvas_id
on conflict (account_id, canvas_id) do update set last_seq = excluded.last_seq;

-- name: delete_canvas
-- Delete a canvas whose events, executions and references are deleted.
delete from canvases where account_id = :account_id and canvas_id = :canvas_id;

-- name: purge_executions
-- Delete some executions of a deleted canvas.
delete from executions
 where ctid = any(array(select ctid from executions
                         where account_id = :account_id and canvas_id = :canvas_id limit :limit))
returning 1;
-- name: list_deleted_accounts
-- List the accounts that are deleted and still have rows.
select account_id from accounts where deleted_at is not null order by deleted_at;

-- name: find_deleted_account
-- Find an account that is deleted and still has rows. It is not locked, because a change of a session locks
-- the session before the account.
select account_id from accounts where account_id = :account_id and deleted_at is not null;

-- name: take_session
-- Return a session of a deleted account, and mark it as deleted, so that the workers of its runs lose their
-- claims.
update sessions set deleted_at = coalesce(deleted_at, clock_timestamp()), active_run_id = null
 where account_id = :account_id
   and session_id = (select session_id from sessions where account_id = :account_id
                      order by session_id limit 1)
returning account_id, session_id;

-- name: take_canvas
-- Return a canvas of a deleted account, and mark it as deleted.
update canvases set deleted_at = coalesce(deleted_at, clock_timestamp())
 where account_id = :account_id
   and canvas_id = (select canvas_id from canvases where account_id = :account_id
                     order by canvas_id limit 1)
returning account_id, canvas_id;

-- name: purge_ended_threads
-- Delete some last thread positions of a deleted account.
delete from ended_threads
 where ctid = any(array(select ctid from ended_threads where account_id = :account_id
                         order by session_id limit :limit))
returning 1;

-- name: purge_ended_canvases
-- Delete some last log positions of a deleted account.
delete from ended_canvases
 where ctid = any(array(select ctid from ended_canvases where account_id = :account_id
                         order by canvas_id limit :limit))
returning 1;

-- name: purge_artifacts
-- Delete some artifacts of a deleted account, to which nothing refers any more.
delete from artifacts
 where ctid = any(array(select ctid from artifacts where account_id = :account_id
                         order by artifact_id limit :limit))
returning 1;

-- name: purge_ordered
-- Delete some numbered appends of a deleted account.
delete from ordered_appends
 where account_id = :account_id
   and server_seq in (select server_seq from ordered_appends where account_id = :account_id
                       order by server_seq limit :limit)
returning 1;

-- name: delete_account
-- Delete a deleted account with its few other rows: tokens, settings, secrets and nodes.
delete from accounts where account_id = :account_id and deleted_at is not null;
