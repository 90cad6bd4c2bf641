-- define: flow
-- The columns of a flow.
state, code_verifier, provider, account_id, user_id, sign_in_id, redirect_uri, origin;

-- name: delete_expired_flows
-- Delete expired flows, by their index, so that the table stays small.
delete from oauth_state where expires_at < statement_timestamp();

-- name: start_flow
-- Store a flow of an existing account and person. Returns no row if the account is disabled. RX-39
insert into oauth_state (state, code_verifier, expires_at, provider, account_id, user_id, sign_in_id,
                         redirect_uri, origin)
select :state, :code_verifier, clock_timestamp() + make_interval(secs => :seconds), :provider, a.account_id,
       p.user_id, :sign_in_id, :redirect_uri, :origin
  from accounts a, people p
 where a.account_id = :account_id and a.disabled_at is null and p.user_id = :user_id
returning state;

-- name: find_flow
-- Return a flow that is not finished or expired, without consuming it.
select
  -- include: flow
  from oauth_state where state = :state and expires_at > clock_timestamp() and browser is null;

-- name: consume_flow
-- Delete and return a flow in one statement, so that of any number of callbacks, on any instances, one finds
-- it. Another person and another browser do not find it, and do not spoil it either. RX-40, RX-44
delete from oauth_state
 where state = :state and expires_at > clock_timestamp() and user_id = :user_id
   and (sign_in_id is null or sign_in_id = :sign_in_id)
returning
  -- include: flow
;
