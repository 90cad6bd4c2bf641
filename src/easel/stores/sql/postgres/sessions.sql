-- name: list_sessions
-- List the sessions of an account, latest message first. All filters are applied before the limit.
select
  -- include: session
  from sessions
 where account_id = :account_id and deleted_at is null
   and (last_message_at, session_id) < (coalesce(:before_at::timestamptz, 'infinity'),
                                        coalesce(:before_id::text, ''))
   and (:search::text = '' or title ~ :search or session_id ~ :search)
 order by last_message_at desc, session_id desc
 limit :limit;

-- name: thread_heads
-- Return the last position of each of these threads. An instance polls once for all its subscribers.
select account_id, session_id, last_thread_seq
  from sessions
  join json_array_elements(:threads::text::json) as wanted
    on account_id = wanted->>0 and session_id = wanted->>1
 where deleted_at is null;
