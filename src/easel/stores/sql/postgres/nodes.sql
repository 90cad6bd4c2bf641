-- name: take_calls
-- Take the open calls to these connections of this instance; each call is taken once. Calls whose deadline
-- has passed or whose caller has expired are not taken.
update calls set status = 'taken'
 where target = any(:targets::text[]) and status = 'asked' and deadline > clock_timestamp()
   and heard_until > clock_timestamp()
returning call_id, account_id, target, method, params::text as params,
          extract(epoch from deadline - clock_timestamp())::float8 as seconds_left;
