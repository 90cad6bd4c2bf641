-- name: delete_expired_sign_ins
-- Delete revoked sign-ins whose cookies have expired, so that the table stays small.
delete from ended_sign_ins where forget_at < statement_timestamp();

-- name: revoke_sign_in
-- Revoke a sign-in.
insert into ended_sign_ins (sign_in_id, account_id, forget_at)
select :sign_in_id, account_id, clock_timestamp() + make_interval(secs => :seconds) from accounts
 where account_id = :account_id
on conflict (sign_in_id) do nothing;

-- name: revoked_sign_ins
-- Return those of these sign-ins that were revoked.
select sign_in_id from ended_sign_ins where sign_in_id = any(:sign_in_ids::text[]);

-- name: signing_key
-- Return the key that signs cookies. The first instance stores its candidate; the update of an existing row
-- changes nothing and lets a concurrent instance read the stored key.
insert into server_keys (name, key) values ('signing', :candidate)
on conflict (name) do update set name = excluded.name
returning key;
