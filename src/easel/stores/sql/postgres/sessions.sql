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

-- name: append_account_event
-- Append an event to the log of the account, in the transaction of the change. The row of the account is
-- locked until then, after that of the session, so that the numbers have no gap.
select append_account_event(:account_id, :event_type, :payload) as seq;
