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

-- name: append_account_event
-- Append an event to the log of the account, in the transaction of the change.
insert into account_events (account_id, seq, event_type, visibility, payload, created_at)
select :account_id, coalesce(max(seq), 0) + 1, :event_type, 'public', :payload, :now
  from account_events where account_id = :account_id
returning seq;
