-- define: session
-- The columns of a session.
account_id, session_id, title, created_by, active_run_id, oldest_thread_seq, last_thread_seq, created_at,
last_message_at;

-- name: create_session
-- Create a session without messages. Returns no row if the session exists. The thread continues after the
-- thread of a deleted session of the same id. A session that is being deleted still exists: waiting for its
-- end would read a number from before the deletion. RS-34
insert into sessions (account_id, session_id, title, created_by, oldest_thread_seq, last_thread_seq,
                      created_at, last_message_at)
select :account_id, :session_id, :title, :created_by, ended.seq + 1, ended.seq, now(), now()
  from (select coalesce(max(last_thread_seq), 0) as seq from ended_threads
         where account_id = :account_id and session_id = :session_id) as ended
 where not exists (select 1 from sessions where account_id = :account_id and session_id = :session_id)
on conflict do nothing
returning
  -- include: session
;

-- name: get_session
-- Return one session of this account.
select
  -- include: session
  from sessions where account_id = :account_id and session_id = :session_id and deleted_at is null;

-- name: rename_session
-- Store the title that a person chose.
update sessions set title = :title
 where account_id = :account_id and session_id = :session_id and deleted_at is null
returning
  -- include: session
;

-- name: lock_session
-- Lock a session that is not deleted. Every transaction that locks both a session and its runs locks the
-- session first, so that no deadlock occurs. Returns who made it.
select created_by from sessions
 where account_id = :account_id and session_id = :session_id and deleted_at is null
   for update;

-- name: unfinished_run_ids
-- List the runs of a session that have not ended: the one with the turn, and the waiting ones.
select run_id from runs
 where account_id = :account_id and session_id = :session_id and turn_no is not null
   and status in ('queued', 'running')
union all
select run_id from runs
 where account_id = :account_id and session_id = :session_id and status = 'queued' and turn_no is null;

-- name: end_active_run
-- End the run with the turn of a session that is deleted, also one that waits for a slot of its account. Its
-- worker loses the claim; the waiting runs never get the turn.
update runs set status = 'cancelled', finished_at = clock_timestamp(), lease_until = null
 where account_id = :account_id and session_id = :session_id and (turn_no is not null or waits_for_slot)
   and status in ('queued', 'running');

-- name: mark_session
-- Mark a session as deleted. From now on it and all that belongs to it are not found; its rows are purged
-- later.
update sessions set deleted_at = clock_timestamp(), active_run_id = null
 where account_id = :account_id and session_id = :session_id and deleted_at is null
returning title;

-- name: list_messages
-- List the newest messages before a position in the thread, newest first.
select message_id, run_id, role, content::text as content, status, error_message, thread_seq, created_at
  from messages
 where account_id = :account_id and session_id = :session_id and thread_seq < :before
   and exists (select 1 from sessions
                where account_id = :account_id and session_id = :session_id and deleted_at is null)
 order by thread_seq desc
 limit :limit;

-- name: thread_bounds
-- Return the first and the last position of a thread.
select oldest_thread_seq, last_thread_seq from sessions
 where account_id = :account_id and session_id = :session_id and deleted_at is null;

-- name: thread_after
-- Return a page of a thread: the narrative events of runs, and messages that have a payload. RX-36
select thread_seq, event_type, visibility, created_at, payload::text as payload
  from (select * from (select thread_seq, event_type, visibility, created_at, payload
                         from run_events
                        where account_id = :account_id and session_id = :session_id and thread_seq > :cursor
                        order by thread_seq limit :limit) as events
        union all
        select * from (select thread_seq, 'message.completed', 'public', created_at, payload
                         from messages
                        where account_id = :account_id and session_id = :session_id and thread_seq > :cursor
                          and payload is not null
                        order by thread_seq limit :limit) as said) as thread
 where exists (select 1 from sessions
                where account_id = :account_id and session_id = :session_id and deleted_at is null)
 order by thread_seq
 limit :limit;

-- name: thread_heads
-- Return the last position of each of these threads. An instance polls once for all its subscribers.
select account_id, session_id, last_thread_seq
  from sessions
  join json_array_elements(:threads::text::json) as wanted
    on account_id = wanted->>0 and session_id = wanted->>1
 where deleted_at is null;
