-- name: create_token
-- A token of a user who is there; no row: there is no such user.
insert into tokens (token_id, user_id, kind, name, node_id, digest, created_at)
select :token_id, user_id, :kind, :name, :node_id, :digest, :now from users where user_id = :user_id
returning *;

-- name: token_of_digest
-- Whose token this is, unless it was revoked.
select * from tokens where digest = :digest and revoked_at is null;

-- name: token_of_id
-- The token that a cookie stands for, unless it was revoked.
select * from tokens where token_id = :token_id and revoked_at is null;

-- name: valid_tokens
-- Which of these have not been revoked.
select token_id from tokens where token_id in (select value from json_each(:token_ids)) and revoked_at is null;

-- name: list_tokens
-- All of a user's tokens, or everybody's, oldest first; those that were revoked too.
select * from tokens where :user_id is null or user_id = :user_id order by token_id;

-- name: revoke_token
-- From now on it opens nothing; no row: there is no such token, or it opened nothing before.
update tokens set revoked_at = :now where token_id = :token_id and revoked_at is null returning *;
