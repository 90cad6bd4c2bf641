-- name: find_person
-- Return the person whose account this is, unless the account is disabled.
select p.user_id, p.is_operator from people p join accounts a on a.account_id = p.user_id
 where p.user_id = :account_id and a.disabled_at is null;

-- name: mark_account
-- Mark an account as deleted, which also disables it. Its rows and blobs are purged later.
update accounts set deleted_at = clock_timestamp(), disabled_at = coalesce(disabled_at, clock_timestamp())
 where account_id = :account_id and deleted_at is null
returning account_id;
