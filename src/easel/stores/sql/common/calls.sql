-- name: place_call
-- Store a call, if its target is a current connection. The row lock makes a concurrent unregistration of the
-- node wait until the call is stored, and then fail the call. DESIGN §5
insert into calls (call_id, account_id, target, method, params, status, deadline, heard_until)
select :call_id, account_id, connection_id, :method, :params::text::json, 'asked',
       clock_timestamp() + make_interval(secs => :timeout_seconds),
       clock_timestamp() + make_interval(secs => :caller_ttl_seconds)
  from nodes where account_id = :account_id and connection_id = :target and expires_at > clock_timestamp()
   for key share
returning call_id;

-- name: answer_call
-- Store the answer of a call, once. Returns no row if the call was cancelled or its deadline has passed.
update calls set status = 'answered', answer = :answer::text::json
 where call_id = :call_id and target = :target and status = 'taken' and cancelled_at is null
   and deadline > clock_timestamp()
returning call_id;

-- name: delete_call
-- Delete a call that its caller cancels, if the call was not taken yet or is already answered.
delete from calls where call_id = :call_id and account_id = :account_id and status <> 'taken'
returning call_id;

-- name: cancel_call
-- Mark a taken call as cancelled, so that the instance that runs the call stops it.
update calls set cancelled_at = clock_timestamp()
 where call_id = :call_id and account_id = :account_id and status = 'taken' returning target;

-- name: take_cancelled_calls
-- Take the calls that this instance must stop: calls that were cancelled and, if requested, calls that their
-- caller did not renew in time. Expiry is compared with the start of the statement, because a stalled
-- database delays the renewals of callers too.
delete from calls
 where target = any(:targets::text[]) and status = 'taken'
   and (cancelled_at is not null or (:unheard::bool and heard_until <= statement_timestamp()))
returning call_id;

-- name: renew_calls
-- Extend the expiry of the callers of these calls. Returns the calls that still exist.
update calls set heard_until = clock_timestamp() + make_interval(secs => :seconds)
 where call_id = any(:call_ids::text[]) returning call_id;

-- name: collect_answers
-- Take the answers of these calls. A call to a connection that has ended or expired is returned without an
-- answer.
delete from calls
 where call_id = any(:call_ids::text[])
   and (status = 'answered'
        or not exists (select 1 from nodes n
                         where n.connection_id = calls.target and n.expires_at > clock_timestamp()))
returning call_id, answer::text as answer;

-- name: sweep_calls
-- Delete calls whose answers were never collected.
delete from calls where deadline < statement_timestamp() - make_interval(secs => :seconds);

-- name: take_calls
-- Take the open calls to these connections of this instance; each call is taken once. Calls whose deadline
-- has passed or whose caller has expired are not taken.
update calls set status = 'taken'
 where target = any(:targets::text[]) and status = 'asked' and deadline > clock_timestamp()
   and heard_until > clock_timestamp()
returning call_id, account_id, target, method, params::text as params,
          extract(epoch from deadline - clock_timestamp())::float8 as seconds_left;
