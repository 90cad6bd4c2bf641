-- name: create_token
-- Store a token of an existing account. Returns no row if the account does not exist.
insert into tokens (token_id, account_id, kind, name, node_id, digest, created_at)
select :token_id, account_id, :kind, :name, :node_id, :digest, clock_timestamp() from accounts
 where account_id = :account_id
returning token_id, account_id, kind, name, node_id, created_at, revoked_at;

-- name: token_by_digest
-- Return the token with this digest, unless it was revoked.
select token_id, account_id, kind, name, node_id, created_at, revoked_at from tokens
 where digest = :digest and revoked_at is null;

-- name: token_by_id
-- Return the token that a cookie was signed for, unless it was revoked.
select token_id, account_id, kind, name, node_id, created_at, revoked_at from tokens
 where token_id = :token_id and revoked_at is null;

-- name: valid_tokens
-- Return those of these tokens that were not revoked.
select token_id from tokens where token_id = any(:token_ids::text[]) and revoked_at is null;

-- name: list_tokens
-- List the tokens of all accounts, including revoked ones, oldest first.
select token_id, account_id, kind, name, node_id, created_at, revoked_at from tokens order by token_id;

-- name: list_account_tokens
-- List the tokens of one account, including revoked ones, oldest first.
select token_id, account_id, kind, name, node_id, created_at, revoked_at
  from tokens where account_id = :account_id order by token_id;

-- name: bind_token
-- Bind a node's token to the first node id that connects with it. Returns no row if it is bound. RS-68
update tokens set node_id = :node_id
 where token_id = :token_id and kind = 'node' and node_id is null and revoked_at is null
returning token_id, account_id, kind, name, node_id, created_at, revoked_at;

-- name: revoke_token
-- Revoke a token. Returns no row if the token does not exist or is already revoked.
update tokens set revoked_at = clock_timestamp() where token_id = :token_id and revoked_at is null
returning token_id, account_id, kind, name, node_id, created_at, revoked_at;
