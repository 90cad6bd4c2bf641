-- name: lock_run
-- Lock the run, so that its board writes and its other events have one order. The session is not locked,
-- because board events are not part of its thread.
select 1 from runs where run_id = :run_id and user_id = :user_id for update;

-- name: find_board_state
-- Return the status of the run, the version of the key, the number of all values on the run's boards, and the
-- size of all values except the one of the key. Requires the lock of the run.
select r.status,
       coalesce(max(b.version) filter (where b.board = :board and b.edge_id = :edge_id and b.key = :key), 0)
         as version,
       count(b.key) as keys,
       coalesce(sum(b.size) filter (where (b.board, b.edge_id, b.key) <> (:board, :edge_id, :key)), 0)::bigint
         as other_bytes
  from runs r left join boards b on b.run_id = r.run_id
 where r.run_id = :run_id and r.user_id = :user_id
 group by r.run_id;

-- name: write_board
-- Store a value, its event and its artifact references. A write by the run's own agent requires that its
-- worker still holds the claim of this attempt. CC-09, RX-13
with grown as (
  update runs set last_seq = last_seq + 1
   where run_id = :run_id and user_id = :user_id and status in ('queued', 'running')
     and (:worker_id::text is null
          or (owner_id = :worker_id and attempt = :attempt::int and status = 'running'
              and lease_until > clock_timestamp()))
  returning run_id, user_id, last_seq
), kept as (
  insert into boards (run_id, user_id, board, edge_id, key, value, size, version, agent_id, node_id,
                      kind, created_at, updated_at)
  select run_id, user_id, :board, :edge_id, :key, :value::text::json, :size::bigint, :version::bigint,
         :agent_id, :node_id, :kind,
         statement_timestamp(), statement_timestamp()
    from grown
  on conflict (run_id, board, edge_id, key) do update
    set value = excluded.value, size = excluded.size, version = excluded.version,
        agent_id = excluded.agent_id, node_id = excluded.node_id, kind = excluded.kind,
        updated_at = excluded.updated_at
  returning created_at, updated_at
), logged as (
  insert into run_events (run_id, seq, event_type, visibility, payload, created_at)
  select run_id, last_seq, :event_type::text, :visibility::text,
         jsonb_set(:payload::text::jsonb, '{version}', to_jsonb(:version::bigint)), clock_timestamp()
    from grown
), named as (
  select a.artifact_id from artifacts a, grown
   where a.user_id = grown.user_id and a.artifact_id = any(:artifact_ids::text[])
   order by a.artifact_id
     for key share of a
), referred as (
  insert into artifact_refs (user_id, artifact_id, run_id)
  select user_id, artifact_id, run_id from grown, named
  on conflict do nothing
)
select last_seq as seq, created_at, updated_at from grown, kept;

-- name: read_board
-- Return one value, the values of an edge, or all values of a board of this user's run. A single row without
-- a key means that there is no such value; no row means that there is no such run.
select b.board, b.edge_id, b.key, b.value::text as value, b.version, b.agent_id, b.node_id, b.kind,
       b.created_at, b.updated_at
  from runs r left join boards b
    on b.run_id = r.run_id and b.board = :board and (:edge_id::text is null or b.edge_id = :edge_id)
     and (:key::text is null or b.key = :key)
 where r.run_id = :run_id and r.user_id = :user_id
 order by b.edge_id collate "C", b.key collate "C";
