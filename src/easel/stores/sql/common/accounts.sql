-- name: find_person
-- Return the person whose account this is, unless the account is disabled.
select p.user_id, p.is_operator, p.display_name from people p join accounts a on a.account_id = p.user_id
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

-- name: add_account
-- Create an account. Returns no row if the name is in use, or was that of a deleted account.
insert into accounts (account_id, kind)
select :account_id, :kind where not exists (select 1 from ended_accounts where account_id = :account_id)
on conflict (account_id) do nothing
returning account_id;

-- name: add_person
-- Create the person of an account.
insert into people (user_id, display_name) values (:account_id, :display_name) returning user_id;

-- name: set_member
-- Make a person a member of a team, or change their role; a claim does not change it then. Returns no row if
-- it is no team or no person.
insert into team_members (account_id, user_id, role)
select a.account_id, p.user_id, :role from accounts a join people p on p.user_id = :user_id
 where a.account_id = :account_id and a.kind = 'team' and a.deleted_at is null
on conflict (account_id, user_id) do update set role = excluded.role, from_claim = false
returning user_id;

-- name: mark_account
-- Mark an account as deleted, which also disables it. Its rows and blobs are purged later.
update accounts set deleted_at = clock_timestamp(), disabled_at = coalesce(disabled_at, clock_timestamp())
 where account_id = :account_id and deleted_at is null
returning account_id;
