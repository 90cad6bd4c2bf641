-- name: lock_node
-- The connection that a node had until now; whoever enters next waits for this one.
select connection_id from nodes where user_id = :user_id and node_id = :node_id for update;

-- name: count_nodes
-- How many other nodes of this user are there.
select count(*) as others from nodes where user_id = :user_id and node_id <> :node_id and expires_at > clock_timestamp();

-- name: enter_node
-- A node is here, in the place of what was known of it, and is believed to be for so long.
insert into nodes (user_id, node_id, connection_id, instance_id, version, platform, tools, expires_at)
values (:user_id, :node_id, :connection_id, :instance_id, :version, :platform, :tools::text::json, clock_timestamp() + make_interval(secs => :seconds))
on conflict (user_id, node_id) do update
   set connection_id = excluded.connection_id, instance_id = excluded.instance_id, version = excluded.version, platform = excluded.platform,
       tools = excluded.tools, connected_at = clock_timestamp(), expires_at = excluded.expires_at
returning connected_at;

-- name: enter_node_again
-- A node whose row was taken for dead is here all the same, unless it has meanwhile connected elsewhere: then no row.
insert into nodes (user_id, node_id, connection_id, instance_id, version, platform, tools, connected_at, expires_at)
values (:user_id, :node_id, :connection_id, :instance_id, :version, :platform, :tools::text::json, :connected_at, clock_timestamp() + make_interval(secs => :seconds))
on conflict do nothing
returning connected_at;

-- name: leave_node
-- This connection of a node has ended.
delete from nodes where connection_id = :connection_id returning user_id, node_id;

-- name: lose_calls
-- What was asked of a connection that has ended gets no answer. After the node's row is locked or gone, so that no call slips through.
update calls set status = 'answered', answer = '{"lost": true}' where target = :target and status in ('asked', 'taken') returning call_id;

-- name: renew_nodes
-- The connections of these nodes are alive; which of them are still the node's.
update nodes set expires_at = clock_timestamp() + make_interval(secs => :seconds) where connection_id = any(:connection_ids::text[]) returning connection_id;

-- name: list_nodes
-- The nodes of a user that are there, on whichever instance.
select user_id, node_id, connection_id, instance_id, version, platform, tools::text as tools, connected_at
  from nodes where user_id = :user_id and expires_at > clock_timestamp()
 order by node_id collate "C";

-- name: place_call
-- Ask something of a connection, if it is there. Its row cannot go before this is stored, so whoever removes it sees the call. DESIGN §5
insert into calls (call_id, user_id, target, method, params, status, deadline, heard_until)
select :call_id, user_id, connection_id, :method, :params::text::json, 'asked', clock_timestamp() + make_interval(secs => :seconds),
       clock_timestamp() + make_interval(secs => :caller_ttl_seconds)
  from nodes where user_id = :user_id and connection_id = :target and expires_at > clock_timestamp()
   for key share
returning call_id;

-- name: take_calls
-- What is asked of the connections of this instance, each once, unless nobody waits for it any more.
update calls set status = 'taken'
 where target = any(:targets::text[]) and status = 'asked' and deadline > clock_timestamp() and heard_until > clock_timestamp()
returning call_id, user_id, target, method, params::text as params, extract(epoch from deadline - clock_timestamp())::float8 as seconds_left;

-- name: answer_call
-- The one answer; no row: nobody waits for it any more.
update calls set status = 'answered', answer = :answer::text::json
 where call_id = :call_id and target = :target and status = 'taken' and cancelled_at is null and deadline > clock_timestamp()
returning call_id;

-- name: drop_call
-- Nobody waits for a call that was not begun, or has its answer already.
delete from calls where call_id = :call_id and user_id = :user_id and status <> 'taken' returning call_id;

-- name: cancel_call
-- Nobody waits for a call that is under way: the instance that has taken it is to stop it.
update calls set cancelled_at = clock_timestamp() where call_id = :call_id and user_id = :user_id and status = 'taken' returning target;

-- name: withdrawn_calls
-- What this instance is to stop: nobody waits for it, or, where that counts, whoever did has not been heard of for too long. By the time at
-- which it was asked: a database that stalled has kept callers from being heard of, too.
delete from calls
 where target = any(:targets::text[]) and status = 'taken' and (cancelled_at is not null or (:unheard::bool and heard_until <= statement_timestamp()))
returning call_id;

-- name: renew_calls
-- Whoever made these calls still waits; which of them there are still.
update calls set heard_until = clock_timestamp() + make_interval(secs => :seconds) where call_id = any(:call_ids::text[]) returning call_id;

-- name: collect_calls
-- The answers that have come to these calls, and those to which none will come, since their connection has gone with its instance.
delete from calls c
 where call_id = any(:call_ids::text[])
   and (status = 'answered' or not exists (select 1 from nodes n where n.connection_id = c.target and n.expires_at > clock_timestamp()))
returning call_id, answer::text as answer;

-- name: sweep_calls
-- What nobody fetched.
delete from calls where deadline < clock_timestamp() - make_interval(secs => :seconds);

-- name: sweep_nodes
-- What was left behind by instances that died.
delete from nodes where expires_at < clock_timestamp() - make_interval(secs => :seconds);
