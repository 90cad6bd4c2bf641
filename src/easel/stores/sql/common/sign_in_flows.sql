-- name: delete_expired_flows
-- Delete expired flows by their index, so that the table stays small.
delete from oauth_state where expires_at < statement_timestamp();

-- name: start_sign_in
-- Store a flow of a browser, before its person is known. RX-39
insert into oauth_state (state, code_verifier, expires_at, provider, nonce, browser, redirect_uri, origin,
                         invitation)
values (:state, :code_verifier, clock_timestamp() + make_interval(secs => :seconds), :issuer, :nonce,
        :browser, :redirect_uri, :target, :invitation);

-- name: consume_sign_in
-- Delete and return a flow in one statement, so that of any number of callbacks one finds it. Another browser
-- does not find it, and does not spoil it either. RX-40, RX-44
delete from oauth_state
 where state = :state and browser = :browser and expires_at > clock_timestamp()
returning state, code_verifier, nonce, browser, provider as issuer, redirect_uri,
          origin as target, invitation;
