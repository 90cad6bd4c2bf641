-- name: list_secrets
-- List the names of an account's secrets after a name, in their order. RS-66
select name, created_at, updated_at from secrets
 where account_id = :account_id and name > :after order by name limit :limit;

-- name: read_secrets
-- Return these secrets of an account, encrypted.
select name, key_id, data from secrets where account_id = :account_id and name = any(:names);

-- name: set_secret
-- Store or replace a secret. Returns no row if the account has as many others as allowed, or does not exist.
insert into secrets (account_id, name, key_id, data, created_at, updated_at)
select account_id, :name, :key_id, :data, clock_timestamp(), clock_timestamp() from accounts
 where account_id = :account_id
   and (select count(*) from secrets where account_id = :account_id and name <> :name) < :limit
on conflict (account_id, name) do update
   set key_id = excluded.key_id, data = excluded.data, updated_at = excluded.updated_at
returning name;

-- name: delete_secret
-- Delete a secret of an account. Returns no row if there is none of this name.
delete from secrets where account_id = :account_id and name = :name returning name;

-- name: list_other_secrets
-- List the secrets of all accounts that were encrypted with another key, for a rotation. Reads the whole
-- table.
select account_id, name, key_id, data from secrets where key_id <> :key_id order by account_id, name;

-- name: replace_secret
-- Replace a secret unless it was changed since it was read.
update secrets set data = :data, key_id = :key_id
 where account_id = :account_id and name = :name and data = :replaced
returning name;
