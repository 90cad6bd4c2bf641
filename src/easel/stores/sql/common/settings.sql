-- name: user_settings
-- Return the settings of one user.
select name, value, encrypted, key_id from settings where user_id = :user_id;

-- name: set_setting
-- Store a setting of an existing user, or replace it. RX-19
insert into settings (user_id, name, value, encrypted, key_id, updated_at)
select user_id, :name, :value, :encrypted, :key_id, clock_timestamp() from users where user_id = :user_id
on conflict (user_id, name) do update
   set value = excluded.value, encrypted = excluded.encrypted, key_id = excluded.key_id,
       updated_at = excluded.updated_at;

-- name: delete_setting
-- Delete a setting of a user, so that the default is used again.
delete from settings where user_id = :user_id and name = :name;

-- name: list_other_secrets
-- List the secrets of all users that were encrypted with another key, for a rotation. Reads the whole table.
select user_id, name, encrypted, key_id from settings
 where key_id <> :key_id order by user_id, name;

-- name: replace_secret
-- Replace a secret unless a user has changed it since it was read.
update settings set encrypted = :encrypted, key_id = :key_id
 where user_id = :user_id and name = :name and encrypted = :replaced
returning name;
