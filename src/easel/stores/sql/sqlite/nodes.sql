-- name: lock_node
-- Return the current connection of a node.
select connection_id from nodes where user_id = :user_id and node_id = :node_id;

-- name: count_nodes
-- Count the other connected nodes of this user.
select count(*) as others from nodes where user_id = :user_id and node_id <> :node_id and expires_at > :now;

-- name: register_node
-- Store the connection of a node, replacing an earlier connection. The row expires unless its instance renews
-- it.
insert into nodes (user_id, node_id, connection_id, instance_id, version, platform, tools, connected_at,
                   expires_at)
values (:user_id, :node_id, :connection_id, :instance_id, :version, :platform, :tools, :now, :expires_at)
on conflict (user_id, node_id) do update
   set connection_id = excluded.connection_id, instance_id = excluded.instance_id, version = excluded.version,
       platform = excluded.platform,
       tools = excluded.tools, connected_at = excluded.connected_at, expires_at = excluded.expires_at
returning connected_at;

-- name: register_node_again
-- Restore the row of a connected node after the row expired. Returns no row if the node has another
-- connection now.
insert into nodes (user_id, node_id, connection_id, instance_id, version, platform, tools, connected_at,
                   expires_at)
values (:user_id, :node_id, :connection_id, :instance_id, :version, :platform, :tools, :connected_at,
        :expires_at)
on conflict do nothing
returning connected_at;

-- name: unregister_node
-- Delete the row of a node whose connection has ended.
delete from nodes where connection_id = :connection_id returning user_id, node_id;

-- name: fail_calls
-- Fail the open calls to a connection that has ended.
update calls set status = 'answered', answer = '{"lost": true}'
 where target = :target and status in ('asked', 'taken') returning call_id;

-- name: renew_nodes
-- Extend the expiry of the nodes with these connections. Returns the connections that are still current.
update nodes set expires_at = :expires_at
 where connection_id in (select value from json_each(:connection_ids)) returning connection_id;

-- name: list_nodes
-- List the connected nodes of a user.
select * from nodes where user_id = :user_id and expires_at > :now order by node_id;

-- name: place_call
-- Store a call to a node, if the connection is current. DESIGN §5
insert into calls (call_id, user_id, target, method, params, status, deadline, heard_until)
select :call_id, user_id, connection_id, :method, :params, 'asked', :deadline, :heard_until
  from nodes where user_id = :user_id and connection_id = :target and expires_at > :now
returning call_id;

-- name: take_calls
-- Take the open calls to these connections; each call is taken once. Calls whose deadline has passed or whose
-- caller has expired are not taken.
update calls set status = 'taken'
 where target in (select value from json_each(:targets)) and status = 'asked' and deadline > :now
   and heard_until > :now
returning call_id, user_id, target, method, params, (deadline - :now) / 1000000.0 as seconds_left;

-- name: answer_call
-- Store the answer of a call, once. Returns no row if the call was cancelled or its deadline has passed.
update calls set status = 'answered', answer = :answer
 where call_id = :call_id and target = :target and status = 'taken' and cancelled_at is null
   and deadline > :now
returning call_id;

-- name: delete_call
-- Delete a call that its caller cancels, if the call was not taken yet or is already answered.
delete from calls where call_id = :call_id and user_id = :user_id and status <> 'taken' returning call_id;

-- name: cancel_call
-- Mark a taken call as cancelled, so that the instance that runs the call stops it.
update calls set cancelled_at = :now
 where call_id = :call_id and user_id = :user_id and status = 'taken' returning target;

-- name: take_cancelled_calls
-- Take the calls that this instance must stop: calls that were cancelled and, if requested, calls that their
-- caller did not renew in time.
delete from calls
 where target in (select value from json_each(:targets)) and status = 'taken'
   and (cancelled_at is not null or (:unheard and heard_until <= :now))
returning call_id;

-- name: renew_calls
-- Extend the expiry of the callers of these calls. Returns the calls that still exist.
update calls set heard_until = :heard_until
 where call_id in (select value from json_each(:call_ids)) returning call_id;

-- name: collect_answers
-- Take the answers of these calls. A call to a connection that has ended or expired is returned without an
-- answer.
delete from calls
 where call_id in (select value from json_each(:call_ids))
   and (status = 'answered'
        or not exists (select 1 from nodes n where n.connection_id = calls.target and n.expires_at > :now))
returning call_id, answer;

-- name: sweep_calls
-- Delete calls whose answers were never collected.
delete from calls where deadline < :before;

-- name: sweep_nodes
-- Delete the rows of nodes that a crashed instance did not unregister.
delete from nodes where expires_at < :before;
