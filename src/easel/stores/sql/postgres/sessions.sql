-- name: create_session
-- A session before its first message; nothing where there is one already.
with ended as (
  select coalesce(max(last_thread_seq), 0) as seq from ended_threads where user_id = :user_id and session_id = :session_id
)
insert into sessions (user_id, session_id, title, oldest_thread_seq, last_thread_seq)
select :user_id, :session_id, :title, ended.seq + 1, ended.seq from ended
on conflict do nothing
returning *;

-- name: get_session
-- One session of this user.
select * from sessions where user_id = :user_id and session_id = :session_id;

-- name: list_sessions
-- Latest message first; every filter is applied before the limit.
select * from sessions
 where user_id = :user_id
   and (:before_at::timestamptz is null or (last_message_at, session_id) < (:before_at, :before_id::text))
   and (:search::text = '' or title ~ :search or session_id ~ :search)
 order by last_message_at desc, session_id desc
 limit :limit;

-- name: rename_session
-- A title of the user's own.
update sessions set title = :title where user_id = :user_id and session_id = :session_id returning *;

-- name: lock_session
-- The first lock of every change to a session's runs: sessions before runs, always.
select 1 from sessions where user_id = :user_id and session_id = :session_id for update;

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
select message_id, run_id, role, content::text as content, status, error_message, thread_seq, created_at
  from messages
 where user_id = :user_id and session_id = :session_id and (:before::bigint is null or thread_seq < :before)
 order by thread_seq desc
 limit :limit;

-- name: thread_bounds
-- What a thread holds.
select oldest_thread_seq, last_thread_seq from sessions where user_id = :user_id and session_id = :session_id;

-- name: thread_heads
-- How far each watched thread has grown: the one fallback query of an instance, whatever the number of its viewers.
select user_id, session_id, last_thread_seq
  from sessions join unnest(:user_ids::text[], :session_ids::text[]) as w(user_id, session_id) using (user_id, session_id);

-- name: thread_after
-- A page of a thread: what runs said, and what they were asked. RX-36
select thread_seq, event_type, visibility, created_at, payload::text as payload
  from ((select thread_seq, event_type, visibility, created_at, payload
           from run_events
          where user_id = :user_id and session_id = :session_id and thread_seq > :cursor
          order by thread_seq limit :limit)
        union all
        (select thread_seq, 'message.completed', 'public', created_at, payload
           from messages
          where user_id = :user_id and session_id = :session_id and thread_seq > :cursor and payload is not null
          order by thread_seq limit :limit)) as said
 order by thread_seq
 limit :limit;
