-- name: take_calls
-- Take the open calls to these connections; each call is taken once. Calls whose deadline has passed or whose
-- caller has expired are not taken.
update calls set status = 'taken'
 where target in (select value from json_each(:targets)) and status = 'asked' and deadline > :now
   and heard_until > :now
returning call_id, account_id, target, method, params, (deadline - :now) / 1000000.0 as seconds_left;
