-- name: create_session
-- Create a session without messages. Returns no row if the session exists. The thread continues after the
-- thread of a deleted session of the same id.
insert into sessions (user_id, session_id, title, oldest_thread_seq, last_thread_seq, created_at, updated_at,
                      last_message_at)
select :user_id, :session_id, :title, coalesce(max(last_thread_seq), 0) + 1,
       coalesce(max(last_thread_seq), 0), :now, :now, :now
  from ended_threads where user_id = :user_id and session_id = :session_id
on conflict do nothing
returning *;

-- name: get_session
-- Return one session of this user.
select * from sessions where user_id = :user_id and session_id = :session_id;

-- name: list_sessions
-- List the sessions of a user, latest message first. All filters are applied before the limit.
select * from sessions
 where user_id = :user_id
   and (last_message_at, session_id) < (coalesce(:before_at, 9223372036854775807), coalesce(:before_id, ''))
   and (:search = '' or matches(title, :search) or matches(session_id, :search))
 order by last_message_at desc, session_id desc
 limit :limit;

-- name: rename_session
-- Store the title that the user chose.
update sessions set title = :title where user_id = :user_id and session_id = :session_id returning *;

-- name: session_run_ids
-- List the runs of a session, which are deleted with it.
select run_id from runs where user_id = :user_id and session_id = :session_id;

-- name: end_thread
-- Store the last thread position of a session that is deleted, so that a new session of the same id continues
-- from it.
insert into ended_threads (user_id, session_id, last_thread_seq)
select user_id, session_id, last_thread_seq from sessions
 where user_id = :user_id and session_id = :session_id and last_thread_seq > 0
on conflict (user_id, session_id) do update set last_thread_seq = excluded.last_thread_seq;

-- name: delete_session
-- Delete a session with its messages and its runs, including their logs, boards and artifact references.
delete from sessions where user_id = :user_id and session_id = :session_id;

-- name: list_messages
-- List the newest messages before a position in the thread, newest first.
select message_id, run_id, role, content, status, error_message, thread_seq, created_at
  from messages
 where user_id = :user_id and session_id = :session_id and thread_seq < :before
 order by thread_seq desc
 limit :limit;

-- name: thread_bounds
-- Return the first and the last position of a thread.
select oldest_thread_seq, last_thread_seq from sessions where user_id = :user_id and session_id = :session_id;

-- name: thread_heads
-- Return the last position of each of these threads. An instance polls once for all its subscribers.
select user_id, session_id, last_thread_seq
  from sessions
 where (user_id, session_id) in (select json_extract(value, '$[0]'), json_extract(value, '$[1]')
                                   from json_each(:threads));

-- name: thread_after
-- Return a page of a thread: the narrative events of runs, and messages that have a payload. RX-36
select thread_seq, event_type, visibility, created_at, payload
  from (select * from (select thread_seq, event_type, visibility, created_at, payload
                         from run_events
                        where user_id = :user_id and session_id = :session_id and thread_seq > :cursor
                        order by thread_seq limit :limit)
        union all
        select * from (select thread_seq, 'message.completed', 'public', created_at, payload
                         from messages
                        where user_id = :user_id and session_id = :session_id and thread_seq > :cursor
                          and payload is not null
                        order by thread_seq limit :limit))
 order by thread_seq
 limit :limit;
