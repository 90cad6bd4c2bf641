-- name: list_secrets
-- List the names of a user's secrets after a name, in their order. RS-66
select name, created_at, updated_at from secrets
 where user_id = :user_id and name > :after order by name limit :limit;

-- name: read_secrets
-- Return these secrets of a user, encrypted.
select name, key_id, data from secrets where user_id = :user_id and name = any(:names);

-- name: set_secret
-- Store or replace a secret. Returns no row if the user has as many others as allowed, or does not exist.
insert into secrets (user_id, name, key_id, data, created_at, updated_at)
select user_id, :name, :key_id, :data, clock_timestamp(), clock_timestamp() from users
 where user_id = :user_id
   and (select count(*) from secrets where user_id = :user_id and name <> :name) < :limit
on conflict (user_id, name) do update
   set key_id = excluded.key_id, data = excluded.data, updated_at = excluded.updated_at
returning name;

-- name: delete_secret
-- Delete a secret of a user. Returns no row if there is none of this name.
delete from secrets where user_id = :user_id and name = :name returning name;

-- name: list_other_secrets
-- List the secrets of all users that were encrypted with another key, for a rotation. Reads the whole table.
select user_id, name, key_id, data from secrets where key_id <> :key_id order by user_id, name;

-- name: replace_secret
-- Replace a secret unless a user has changed it since it was read.
update secrets set data = :data, key_id = :key_id
 where user_id = :user_id and name = :name and data = :replaced
returning name;
