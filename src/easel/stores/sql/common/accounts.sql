-- name: find_person
-- Return the person whose account this is, unless the account is disabled.
select p.user_id, p.is_operator from people p join accounts a on a.account_id = p.user_id
 where p.user_id = :account_id and a.disabled_at is null;

-- name: account_bounds
-- Return the first and the last position of the log of an account.
select coalesce((select min(seq) from account_events where account_id = :account_id), 1) as oldest_seq,
       coalesce((select max(seq) from account_events where account_id = :account_id), 0) as last_seq
  from accounts where account_id = :account_id and deleted_at is null;

-- name: account_heads
-- Return the last position of each of these logs. One query per poll, for all logs that an instance watches.
select account_id,
       coalesce((select max(seq) from account_events e where e.account_id = a.account_id), 0) as last_seq
  from accounts a where account_id = any(:account_ids::text[]) and deleted_at is null;

-- name: account_after
-- Return a page of the log of an account. RX-36
select seq, event_type, visibility, created_at, payload::text as payload
  from account_events where account_id = :account_id and seq > :cursor order by seq limit :limit;

-- name: mark_account
-- Mark an account as deleted, which also disables it. Its rows and blobs are purged later.
update accounts set deleted_at = clock_timestamp(), disabled_at = coalesce(disabled_at, clock_timestamp())
 where account_id = :account_id and deleted_at is null
returning account_id;
