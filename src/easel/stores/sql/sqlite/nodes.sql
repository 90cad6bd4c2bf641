-- name: lock_node
-- The connection that a node had until now.
select connection_id from nodes where user_id = :user_id and node_id = :node_id;

-- name: count_nodes
-- How many other nodes of this user are there.
select count(*) as others from nodes where user_id = :user_id and node_id <> :node_id and expires_at > :now;

-- name: enter_node
-- A node is here, in the place of what was known of it, and is believed to be for so long.
insert into nodes (user_id, node_id, connection_id, instance_id, version, platform, tools, connected_at, expires_at)
values (:user_id, :node_id, :connection_id, :instance_id, :version, :platform, :tools, :now, :expires_at)
on conflict (user_id, node_id) do update
   set connection_id = excluded.connection_id, instance_id = excluded.instance_id, version = excluded.version, platform = excluded.platform,
       tools = excluded.tools, connected_at = excluded.connected_at, expires_at = excluded.expires_at
returning connected_at;

-- name: enter_node_again
-- A node whose row was taken for dead is here all the same, unless it has meanwhile connected elsewhere: then no row.
insert into nodes (user_id, node_id, connection_id, instance_id, version, platform, tools, connected_at, expires_at)
values (:user_id, :node_id, :connection_id, :instance_id, :version, :platform, :tools, :connected_at, :expires_at)
on conflict do nothing
returning connected_at;

-- name: leave_node
-- This connection of a node has ended.
delete from nodes where connection_id = :connection_id returning user_id, node_id;

-- name: lose_calls
-- What was asked of a connection that has ended gets no answer.
update calls set status = 'answered', answer = '{"lost": true}' where target = :target and status in ('asked', 'taken') returning call_id;

-- name: renew_nodes
-- The connections of these nodes are alive; which of them are still the node's.
update nodes set expires_at = :expires_at where connection_id in (select value from json_each(:connection_ids)) returning connection_id;

-- name: list_nodes
-- The nodes of a user that are there.
select * from nodes where user_id = :user_id and expires_at > :now order by node_id;

-- name: place_call
-- Ask something of a connection, if it is there. DESIGN §5
insert into calls (call_id, user_id, target, method, params, status, deadline, heard_until)
select :call_id, user_id, connection_id, :method, :params, 'asked', :deadline, :heard_until
  from nodes where user_id = :user_id and connection_id = :target and expires_at > :now
returning call_id;

-- name: take_calls
-- What is asked of these connections, each once, unless nobody waits for it any more.
update calls set status = 'taken'
 where target in (select value from json_each(:targets)) and status = 'asked' and deadline > :now and heard_until > :now
returning call_id, user_id, target, method, params, (deadline - :now) / 1000000.0 as seconds_left;

-- name: answer_call
-- The one answer; no row: nobody waits for it any more.
update calls set status = 'answered', answer = :answer
 where call_id = :call_id and target = :target and status = 'taken' and cancelled_at is null and deadline > :now
returning call_id;

-- name: drop_call
-- Nobody waits for a call that was not begun, or has its answer already.
delete from calls where call_id = :call_id and user_id = :user_id and status <> 'taken' returning call_id;

-- name: cancel_call
-- Nobody waits for a call that is under way: the instance that has taken it is to stop it.
update calls set cancelled_at = :now where call_id = :call_id and user_id = :user_id and status = 'taken' returning target;

-- name: withdrawn_calls
-- What this instance is to stop: nobody waits for it, or, where that counts, whoever did has not been heard of for too long.
delete from calls
 where target in (select value from json_each(:targets)) and status = 'taken' and (cancelled_at is not null or (:unheard and heard_until <= :now))
returning call_id;

-- name: renew_calls
-- Whoever made these calls still waits; which of them there are still.
update calls set heard_until = :heard_until where call_id in (select value from json_each(:call_ids)) returning call_id;

-- name: collect_calls
-- The answers that have come to these calls, and those to which none will come, since their connection has gone.
delete from calls
 where call_id in (select value from json_each(:call_ids))
   and (status = 'answered' or not exists (select 1 from nodes n where n.connection_id = calls.target and n.expires_at > :now))
returning call_id, answer;

-- name: sweep_calls
-- What nobody fetched.
delete from calls where deadline < :before;

-- name: sweep_nodes
-- What was left behind by a process that died.
delete from nodes where expires_at < :before;
