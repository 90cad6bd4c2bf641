-- name: lock_node
-- Return the current connection of a node and lock its row, so that concurrent registrations of the node run
-- one after another.
select connection_id from nodes where account_id = :account_id and node_id = :node_id for update;

-- name: count_nodes
-- Count the other connected nodes of this account.
select count(*) as others from nodes
 where account_id = :account_id and node_id <> :node_id and expires_at > clock_timestamp();

-- name: register_node
-- Store the connection of a node, replacing an earlier connection of the same person. The row expires unless
-- its instance renews it. Returns no row if the node is connected and another person's. RS-76
insert into nodes (account_id, node_id, user_id, connection_id, instance_id, version, platform, tools,
                   connected_at, expires_at)
values (:account_id, :node_id, :user_id, :connection_id, :instance_id, :version, :platform,
        :tools::text::json,
        clock_timestamp(), clock_timestamp() + make_interval(secs => :seconds))
on conflict (account_id, node_id) do update
   set user_id = excluded.user_id, connection_id = excluded.connection_id,
       instance_id = excluded.instance_id, version = excluded.version, platform = excluded.platform,
       tools = excluded.tools, connected_at = excluded.connected_at, expires_at = excluded.expires_at
 where nodes.user_id = excluded.user_id or nodes.expires_at <= clock_timestamp()
returning connected_at;

-- name: register_node_again
-- Restore the row of a connected node after the row expired. Returns no row if the node has another
-- connection now.
insert into nodes (account_id, node_id, user_id, connection_id, instance_id, version, platform, tools,
                   connected_at, expires_at)
values (:account_id, :node_id, :user_id, :connection_id, :instance_id, :version, :platform,
        :tools::text::json,
        :connected_at, clock_timestamp() + make_interval(secs => :seconds))
on conflict do nothing
returning connected_at;

-- name: unregister_node
-- Delete the row of a node whose connection has ended.
delete from nodes where connection_id = :connection_id returning account_id, node_id;

-- name: fail_calls
-- Fail the open calls to a connection that has ended. The caller must have locked or deleted the row of the
-- node, so that no call is added concurrently.
update calls set status = 'answered', answer = '{"lost": true}'
 where target = :target and status in ('asked', 'taken') returning call_id;

-- name: renew_nodes
-- Extend the expiry of the nodes with these connections. Returns the connections that are still current.
update nodes set expires_at = clock_timestamp() + make_interval(secs => :seconds)
 where connection_id = any(:connection_ids::text[]) returning connection_id;

-- name: list_nodes
-- List the connected nodes of an account, on any instance.
select account_id, node_id, user_id, connection_id, instance_id, version, platform, tools::text as tools,
       connected_at
  from nodes where account_id = :account_id and expires_at > clock_timestamp()
 order by node_id collate "C";

-- name: sweep_nodes
-- Delete the rows of nodes that a crashed instance did not unregister.
delete from nodes where expires_at < clock_timestamp() - make_interval(secs => :seconds);
