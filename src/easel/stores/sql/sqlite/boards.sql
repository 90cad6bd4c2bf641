-- name: find_board_state
-- Return the status of the run, the version of the key, the number of all values on the run's boards, and the
-- size of all values except the one of the key. There is one writer, so they do not change before the commit.
select r.status,
       coalesce(max(b.version) filter (where (b.board, b.edge_id, b.key) = (:board, :edge_id, :key)), 0)
         as version,
       count(b.key) as keys,
       coalesce(sum(b.size) filter (where (b.board, b.edge_id, b.key) <> (:board, :edge_id, :key)), 0)
         as other_bytes
  from runs r left join boards b on b.run_id = r.run_id
 where r.run_id = :run_id and r.user_id = :user_id
 group by r.run_id;

-- name: take_seq
-- Take the next position in the run's log. A write by the run's own agent requires that its worker still
-- holds the claim of this attempt. RX-13
update runs set last_seq = last_seq + 1
 where run_id = :run_id and user_id = :user_id and status in ('queued', 'running')
   and (:worker_id is null
        or (owner_id = :worker_id and attempt = :attempt and status = 'running' and lease_until > :lease_now))
returning last_seq;

-- name: store_value
-- Store a value with its new version.
insert into boards (run_id, user_id, board, edge_id, key, value, size, version, agent_id, node_id, kind,
                    created_at, updated_at)
values (:run_id, :user_id, :board, :edge_id, :key, :value, :size, :version, :agent_id, :node_id,
        :kind, :now, :now)
on conflict (run_id, board, edge_id, key) do update
  set value = excluded.value, size = excluded.size, version = excluded.version,
      agent_id = excluded.agent_id, node_id = excluded.node_id, kind = excluded.kind,
      updated_at = excluded.updated_at
returning created_at, updated_at;

-- name: add_event
-- Store the event of a board write, with the version of the value. CC-09
insert into run_events (run_id, seq, event_type, visibility, payload, created_at)
values (:run_id, :seq, :event_type, :visibility, json_set(:payload, '$.version', :version), :now);

-- name: add_reference
-- Store a reference from the run to an artifact that a value or its event names. The artifact is then kept as
-- long as the run.
insert into artifact_refs (user_id, artifact_id, run_id)
select user_id, artifact_id, :run_id from artifacts where user_id = :user_id and artifact_id = :artifact_id
on conflict do nothing;

-- name: read_board
-- Return one value, the values of an edge, or all values of a board of this user's run. A single row without
-- a key means that there is no such value; no row means that there is no such run.
select b.board, b.edge_id, b.key, b.value, b.version, b.agent_id, b.node_id, b.kind, b.created_at,
       b.updated_at
  from runs r left join boards b
    on b.run_id = r.run_id and b.board = :board and (:edge_id is null or b.edge_id = :edge_id)
     and (:key is null or b.key = :key)
 where r.run_id = :run_id and r.user_id = :user_id
 order by b.edge_id, b.key;
