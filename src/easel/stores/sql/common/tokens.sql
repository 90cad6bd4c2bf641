-- name: create_token
-- Store a token of an existing account. Returns no row if the account does not exist or is deleted.
insert into tokens (token_id, account_id, kind, name, node_id, digest, created_at)
select :token_id, account_id, :kind, :name, :node_id, :digest, clock_timestamp() from accounts
 where account_id = :account_id and deleted_at is null
returning token_id, account_id, kind, name, node_id, created_at, revoked_at;

-- define: valid_token
-- A token that was not revoked, of an account that is not disabled, with the person whose account it is.
select t.token_id, t.account_id, t.kind, t.name, t.node_id, t.created_at, t.revoked_at, p.user_id,
       p.is_operator
  from tokens t
  join accounts a on a.account_id = t.account_id and a.disabled_at is null
  left join people p on p.user_id = t.account_id
 where t.revoked_at is null;

-- name: token_by_digest
-- Return the token with this digest, unless it was revoked or its account is disabled.
  -- include: valid_token
   and t.digest = :digest;

-- name: token_by_id
-- Return the token that a cookie was signed for, unless it was revoked or its account is disabled.
  -- include: valid_token
   and t.token_id = :token_id;

-- name: valid_tokens
-- Return those of these tokens that were not revoked, and whose account is not disabled.
  -- include: valid_token
   and t.token_id = any(:token_ids::text[]);

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
