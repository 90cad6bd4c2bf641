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
