-- name: list_sessions
-- List the sessions of an account, latest message first. All filters are applied before the limit.
select
  -- include: session
  from sessions
 where account_id = :account_id and deleted_at is null
   and (last_message_at, session_id) < (coalesce(:before_at, 9223372036854775807), coalesce(:before_id, ''))
   and (:search = '' or matches(title, :search) or matches(session_id, :search))
 order by last_message_at desc, session_id desc
 limit :limit;

-- name: thread_heads
-- Return the last position of each of these threads. An instance polls once for all its subscribers.
select account_id, session_id, last_thread_seq
  from sessions
 where (account_id, session_id) in (select json_extract(value, '$[0]'), json_extract(value, '$[1]')
                                   from json_each(:threads))
   and deleted_at is null;
