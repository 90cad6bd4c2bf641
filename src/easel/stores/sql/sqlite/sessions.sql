-- name: create_session
-- A session before its first message; nothing where there is one already.
insert into sessions (user_id, session_id, title, oldest_thread_seq, last_thread_seq, created_at, updated_at, last_message_at)
select :user_id, :session_id, :title, coalesce(max(last_thread_seq), 0) + 1, coalesce(max(last_thread_seq), 0), :now, :now, :now
  from ended_threads where user_id = :user_id and session_id = :session_id
on conflict do nothing
returning *;

-- name: get_session
-- One session of this user.
select * from sessions where user_id = :user_id and session_id = :session_id;

-- name: list_sessions
-- Latest message first; every filter is applied before the limit.
select * from sessions
 where user_id = :user_id
   and (:before_at is null or (last_message_at, session_id) < (:before_at, :before_id))
   and (:search = '' or matches(title, :search) or matches(session_id, :search))
 order by last_message_at desc, session_id desc
 limit :limit;

-- name: rename_session
-- A title of the user's own.
update sessions set title = :title where user_id = :user_id and session_id = :session_id returning *;

-- name: runs_of_session
-- What goes with a session when it is deleted.
select run_id from runs where user_id = :user_id and session_id = :session_id;

-- name: end_thread
-- Where a session of the same name will go on.
insert into ended_threads (user_id, session_id, last_thread_seq)
select user_id, session_id, last_thread_seq from sessions where user_id = :user_id and session_id = :session_id and last_thread_seq > 0
on conflict (user_id, session_id) do update set last_thread_seq = excluded.last_thread_seq;

-- name: delete_session
-- With its runs, their logs, boards and references, and its messages.
delete from sessions where user_id = :user_id and session_id = :session_id;

-- name: list_messages
-- The newest messages below a place in the thread, newest first.
select message_id, run_id, role, content, status, error_message, thread_seq, created_at
  from messages
 where user_id = :user_id and session_id = :session_id and (:before is null or thread_seq < :before)
 order by thread_seq desc
 limit :limit;

-- name: thread_bounds
-- What a thread holds.
select oldest_thread_seq, last_thread_seq from sessions where user_id = :user_id and session_id = :session_id;

-- name: thread_heads
-- How far each watched thread has grown: the one fallback query of an instance, whatever the number of its viewers.
select user_id, session_id, last_thread_seq
  from sessions
 where (user_id, session_id) in (select json_extract(value, '$[0]'), json_extract(value, '$[1]') from json_each(:threads));

-- name: thread_after
-- A page of a thread: what runs said, and what they were asked. RX-36
select thread_seq, event_type, visibility, created_at, payload
  from (select * from (select thread_seq, event_type, visibility, created_at, payload
                         from run_events
                        where user_id = :user_id and session_id = :session_id and thread_seq > :cursor
                        order by thread_seq limit :limit)
        union all
        select * from (select thread_seq, 'message.completed', 'public', created_at, payload
                         from messages
                        where user_id = :user_id and session_id = :session_id and thread_seq > :cursor and payload is not null
                        order by thread_seq limit :limit))
 order by thread_seq
 limit :limit;
