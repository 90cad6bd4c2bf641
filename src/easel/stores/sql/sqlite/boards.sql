-- name: take_seq
-- Take the next position in the run's log. A write by the run's own agent requires that its worker still
-- holds the claim of this attempt. RX-13
update runs set last_seq = last_seq + 1
 where run_id = :run_id and account_id = :account_id and status in ('queued', 'running')
   and (:worker_id is null
        or (owner_id = :worker_id and attempt = :attempt and status = 'running' and lease_until > :lease_now))
returning last_seq;

-- name: store_value
-- Store a value with its new version.
insert into boards (run_id, board, edge_id, key, value, size, version, agent_id, node_id, kind,
                    created_at, updated_at)
values (:run_id, :board, :edge_id, :key, :value, :size, :version, :agent_id, :node_id,
        :kind, :now, :now)
on conflict (run_id, board, edge_id, key) do update
  set value = excluded.value, size = excluded.size, version = excluded.version,
      agent_id = excluded.agent_id, node_id = excluded.node_id, kind = excluded.kind,
      updated_at = excluded.updated_at
returning created_at, updated_at;

-- name: add_event
-- Store the event of a board write, with the version of the value. CC-09
  -- include: append_run_event

-- name: add_references
-- Store references from the run to the artifacts that a value or its event names. They are then kept as long
-- as the run.
insert into artifact_refs (account_id, artifact_id, run_id)
select account_id, artifact_id, :run_id from artifacts
 where account_id = :account_id and artifact_id in (select value from json_each(:artifact_ids))
on conflict do nothing;
