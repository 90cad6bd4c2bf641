-- name: settings_of_account
-- Return the settings of one account.
select name, value, encrypted, key_id from settings where account_id = :account_id;

-- name: set_setting
-- Store a setting of an existing account, or replace it. RX-19
insert into settings (account_id, name, value, encrypted, key_id)
select account_id, :name, :value, :encrypted, :key_id from accounts
 where account_id = :account_id
on conflict (account_id, name) do update
   set value = excluded.value, encrypted = excluded.encrypted, key_id = excluded.key_id;

-- name: delete_setting
-- Delete a setting of an account, so that the default is used again.
delete from settings where account_id = :account_id and name = :name;

-- name: list_other_secrets
-- List the secrets of all accounts that were encrypted with another key, for a rotation. Reads the whole
-- table.
select account_id, name, encrypted, key_id from settings
 where key_id <> :key_id order by account_id, name;

-- name: replace_secret
-- Replace a secret unless it was changed since it was read.
update settings set encrypted = :encrypted, key_id = :key_id
 where account_id = :account_id and name = :name and encrypted = :replaced
returning name;
