-- define: token
-- The columns of a token, without its digest.
token_id, account_id, kind, user_id, role, name, node_id, created_at, expires_at, last_used_at, revoked_at

-- name: create_token
-- Store a token of a member of the account. Returns no row if there is no such account or member.
insert into tokens (token_id, account_id, kind, user_id, role, name, node_id, digest, created_at, expires_at)
select :token_id, a.account_id, :kind, p.user_id, :role, :name, :node_id, :digest, clock_timestamp(),
       clock_timestamp() + make_interval(secs => :seconds)
  from people p join accounts u on u.account_id = p.user_id and u.disabled_at is null
  join accounts a on a.account_id = :account_id and a.deleted_at is null
  left join team_members m on m.account_id = a.account_id and m.user_id = p.user_id
 where p.user_id = :user_id and (a.account_id = p.user_id or m.role is not null)
returning
  -- include: token
;

-- define: valid_token
-- A token that was not revoked and has not expired, with its person and their role in its account, neither of
-- which is disabled. Everybody is admin of their own account. RS-76
select t.token_id, t.account_id, t.kind, t.user_id, t.role, t.name, t.node_id, t.created_at, t.expires_at,
       t.last_used_at, t.revoked_at, p.is_operator, p.display_name,
       case when t.account_id = t.user_id then 'admin'
            else (select m.role from team_members m
                   where m.account_id = t.account_id and m.user_id = t.user_id) end as member_role
  from tokens t join people p on p.user_id = t.user_id
 where t.revoked_at is null and (t.expires_at is null or t.expires_at > clock_timestamp())
   and not exists (select 1 from accounts a
                    where a.account_id in (t.account_id, t.user_id) and a.disabled_at is not null)
   and (t.account_id = t.user_id
        or exists (select 1 from team_members m where m.account_id = t.account_id and m.user_id = t.user_id))

-- name: token_by_digest
-- Return the token with this digest, unless it is no longer valid.
  -- include: valid_token
   and t.digest = :digest;

-- name: tokens_by_id
-- Return those of these tokens that are still valid.
  -- include: valid_token
   and t.token_id = any(:token_ids::text[]);

-- name: note_use
-- Store when these tokens were last used.
update tokens set last_used_at = clock_timestamp() where token_id = any(:token_ids::text[]);

-- name: list_tokens
-- List the tokens of all accounts, including revoked ones, oldest first.
select
  -- include: token
  from tokens order by token_id;

-- name: list_account_tokens
-- List the tokens of one account, including revoked ones, oldest first.
select
  -- include: token
  from tokens where account_id = :account_id order by token_id;

-- name: find_token
-- Return a token of an account.
select
  -- include: token
  from tokens where account_id = :account_id and token_id = :token_id;

-- name: find_other_node
-- Return a row if another person has this node in the account: a valid token is bound to it, or it is
-- connected. The calls of a node are those of its person.
select token_id from (
  -- include: valid_token
     and t.account_id = :account_id and t.node_id = :node_id and t.user_id <> :user_id) as bound
union all
select node_id from nodes
 where account_id = :account_id and node_id = :node_id and user_id <> :user_id
   and expires_at > clock_timestamp()
limit 1;

-- name: bind_token
-- Bind a node's token to the first node id that connects with it. Returns no row if it is bound. RS-68
update tokens set node_id = :node_id
 where token_id = :token_id and kind = 'node' and node_id is null and revoked_at is null
returning
  -- include: token
;

-- name: revoke_token
-- Revoke a token. Returns no row if the token does not exist or is already revoked.
update tokens set revoked_at = clock_timestamp() where token_id = :token_id and revoked_at is null
returning
  -- include: token
;
