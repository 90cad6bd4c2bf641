-- name: next_deleted_session
-- Return the session that was deleted first and still has rows.
select user_id, session_id from sessions where deleted_at is not null
 order by deleted_at limit 1;

-- name: find_deleted_session
-- Return a session that is deleted and still has rows.
select user_id, session_id from sessions
 where user_id = :user_id and session_id = :session_id and deleted_at is not null;

-- name: list_runs_to_purge
-- List some runs of a deleted session.
select run_id from runs where user_id = :user_id and session_id = :session_id limit :limit;

-- name: purge_events
-- Delete some events of these runs.
delete from run_events
 where (run_id, seq) in (select run_id, seq from run_events
                         where run_id in (select value from json_each(:run_ids)) limit :limit);

-- name: purge_boards
-- Delete some board values of these runs.
delete from boards
 where rowid in (select rowid from boards
                 where run_id in (select value from json_each(:run_ids)) limit :limit);

-- name: purge_run_references
-- Delete some artifact references of these runs.
delete from artifact_refs
 where rowid in (select rowid from artifact_refs
                 where run_id in (select value from json_each(:run_ids)) limit :limit);

-- name: purge_runs
-- Delete runs whose events, board values and references are deleted.
delete from runs where run_id in (select value from json_each(:run_ids));

-- name: purge_messages
-- Delete some messages of a deleted session.
delete from messages
 where rowid in (select rowid from messages
                 where user_id = :user_id and session_id = :session_id limit :limit);

-- name: end_thread
-- Store the last thread position of a deleted session, so that a new session of the same id continues from
-- it.
insert into ended_threads (user_id, session_id, last_thread_seq)
select user_id, session_id, last_thread_seq from sessions
 where user_id = :user_id and session_id = :session_id and last_thread_seq > 0
on conflict (user_id, session_id) do update set last_thread_seq = excluded.last_thread_seq;

-- name: delete_session
-- Delete a session whose other rows are deleted.
delete from sessions where user_id = :user_id and session_id = :session_id;

-- name: next_deleted_canvas
-- Return the canvas that was deleted first and still has rows.
select user_id, canvas_id from canvases where deleted_at is not null
 order by deleted_at limit 1;

-- name: find_deleted_canvas
-- Return a canvas that is deleted and still has rows.
select user_id, canvas_id from canvases
 where user_id = :user_id and canvas_id = :canvas_id and deleted_at is not null;

-- name: purge_canvas_events
-- Delete some events of a deleted canvas.
delete from canvas_events
 where (user_id, canvas_id, seq) in (select user_id, canvas_id, seq from canvas_events
                                     where user_id = :user_id and canvas_id = :canvas_id limit :limit);

-- name: purge_executions
-- Delete some executions of a deleted canvas.
delete from canvas_actions
 where (user_id, event_id) in (select user_id, event_id from canvas_actions
                                where user_id = :user_id and canvas_id = :canvas_id limit :limit);

-- name: purge_canvas_references
-- Delete some artifact references of a deleted canvas.
delete from artifact_refs
 where rowid in (select rowid from artifact_refs
                 where user_id = :user_id and canvas_id = :canvas_id limit :limit);

-- name: purge_versions
-- Delete some versions of the document of a deleted canvas.
delete from artefacts
 where rowid in (select rowid from artefacts
                 where user_id = :user_id and canvas_id = :canvas_id limit :limit);

-- name: purge_canvas_version_assets
-- Delete some assets of versions of a deleted canvas.
delete from canvas_version_assets
 where (user_id, canvas_id, version_no, path) in
       (select user_id, canvas_id, version_no, path from canvas_version_assets
         where user_id = :user_id and canvas_id = :canvas_id limit :limit);

-- name: purge_canvas_versions
-- Delete some versions of a deleted canvas.
delete from canvas_versions
 where rowid in (select rowid from canvas_versions
                 where user_id = :user_id and canvas_id = :canvas_id limit :limit);

-- name: purge_drafts
-- Delete some drafts of the document of a deleted canvas.
delete from artefact_drafts
 where rowid in (select rowid from artefact_drafts
                 where user_id = :user_id and canvas_id = :canvas_id limit :limit);

-- name: end_canvas
-- Store the last log position of a deleted canvas, so that a new canvas of the same id continues from it.
insert into ended_canvases (user_id, canvas_id, last_seq)
select user_id, canvas_id, last_seq from canvases where user_id = :user_id and canvas_id = :canvas_id
on conflict (user_id, canvas_id) do update set last_seq = excluded.last_seq;

-- name: delete_canvas
-- Delete a canvas whose events, executions and references are deleted.
delete from canvases where user_id = :user_id and canvas_id = :canvas_id;
