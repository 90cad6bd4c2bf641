-- define: connection
-- The columns of a connection, and what the clock of the database says of them.
account_id, provider, user_id, key_id, data, scopes, connected_at, expires_at, revision, must_reconnect,
coalesce(expires_at <= clock_timestamp(), false) as is_expired,
coalesce(refresh_until > clock_timestamp(), false) as is_refreshing;

-- name: list_connections
-- List the connections of an account.
select
  -- include: connection
  from auth where account_id = :account_id order by provider;

-- name: read_connection
-- Return one connection of an account.
select
  -- include: connection
  from auth where account_id = :account_id and provider = :provider;

-- name: connect
-- Store or replace the connection of an account. Its new revision ends a refresh of the earlier tokens.
-- Returns no row if the account is disabled, or the person is not an admin of it now. RX-40
insert into auth (account_id, provider, user_id, key_id, data, scopes, connected_at, expires_at, revision)
select a.account_id, :provider, p.user_id, :key_id, :data, :scopes, clock_timestamp(),
       clock_timestamp() + make_interval(secs => :usable_seconds), :new_revision
  from accounts a, people p
 where a.account_id = :account_id and a.disabled_at is null and p.user_id = :user_id
   and (p.user_id = a.account_id
        or exists (select 1 from team_members m
                    where m.account_id = a.account_id and m.user_id = p.user_id and m.role = 'admin'))
on conflict (account_id, provider) do update
   set user_id = excluded.user_id, key_id = excluded.key_id, data = excluded.data, scopes = excluded.scopes,
       connected_at = excluded.connected_at, expires_at = excluded.expires_at, revision = excluded.revision,
       refresh_id = null, refresh_until = null, must_reconnect = false
returning provider;

-- name: claim_refresh
-- Claim the refresh of these tokens, unless another process does it or they have changed. Returns no row
-- then. RX-41
update auth set refresh_id = :refresh_id,
       refresh_until = clock_timestamp() + make_interval(secs => :claim_seconds)
 where account_id = :account_id and provider = :provider and revision = :old_revision and not must_reconnect
   and (refresh_until is null or refresh_until <= clock_timestamp())
returning provider;

-- name: save_refreshed
-- Store refreshed tokens, also after the claim has expired: a rotated refresh token must not be lost. Returns
-- no row if the connection was removed, or its tokens have changed: removal wins. RX-41
update auth set key_id = :key_id, data = :data, revision = :new_revision,
       scopes = coalesce(:scopes, scopes),
       expires_at = clock_timestamp() + make_interval(secs => :usable_seconds),
       refresh_id = null, refresh_until = null, must_reconnect = false
 where account_id = :account_id and provider = :provider and revision = :old_revision
returning provider;

-- name: end_refresh
-- End a refresh that has failed, and mark the connection if the provider has revoked it.
update auth set refresh_id = null, refresh_until = null, must_reconnect = :must_reconnect
 where account_id = :account_id and provider = :provider and revision = :old_revision
   and refresh_id = :refresh_id;

-- name: delete_connection
-- Delete a connection. Returns no row if there is none.
delete from auth where account_id = :account_id and provider = :provider returning provider;

-- name: list_other_secrets
-- List the tokens of all accounts that were encrypted with another key, for a rotation.
select account_id, provider, key_id, data from auth where key_id <> :key_id order by account_id, provider;

-- name: replace_secret
-- Replace encrypted tokens unless they were changed since they were read.
update auth set data = :data, key_id = :key_id
 where account_id = :account_id and provider = :name and data = :replaced
returning provider;
