-- name: lock_run
-- Lock the run, so that its board writes and its other events have one order. The session is not locked,
-- because board events are not part of its thread.
select 1 from runs where run_id = :run_id and account_id = :account_id for update;

-- name: write_board
-- Store a value, its event and its artifact references. A write by the run's own agent requires that its
-- worker still holds the claim of this attempt. CC-09, RX-13
with grown as (
  update runs set last_seq = last_seq + 1
   where run_id = :run_id and account_id = :account_id and status in ('queued', 'running')
     and (:worker_id::text is null
          or (owner_id = :worker_id and attempt = :attempt::int and status = 'running'
              and lease_until > clock_timestamp()))
  returning run_id, account_id, last_seq - 1 as base, last_seq
), kept as (
  insert into boards (run_id, board, edge_id, key, value, size, version, agent_id, node_id,
                      kind, created_at, updated_at)
  select run_id, :board, :edge_id, :key, :value::text::json, :size::bigint, :version::bigint,
         :agent_id, :node_id, :kind,
         statement_timestamp(), statement_timestamp()
    from grown
  on conflict (run_id, board, edge_id, key) do update
    set value = excluded.value, size = excluded.size, version = excluded.version,
        agent_id = excluded.agent_id, node_id = excluded.node_id, kind = excluded.kind,
        updated_at = excluded.updated_at
  returning created_at, updated_at
), events as (
  select run_id, last_seq as seq, :event_type::text as event_type, :visibility::text as visibility,
         jsonb_set(:payload::text::jsonb, '{version}', to_jsonb(:version::bigint)) as payload, account_id,
         null::text as session_id, null::bigint as thread_seq
    from grown
),
  -- include: append_run_events
,
  -- include: order_run_appends
, named as (
  select a.artifact_id from artifacts a, grown
   where a.account_id = grown.account_id and a.artifact_id = any(:artifact_ids::text[])
   order by a.artifact_id
     for key share of a
), referred as (
  insert into artifact_refs (account_id, artifact_id, run_id)
  select account_id, artifact_id, run_id from grown, named
  on conflict do nothing
)
select last_seq as seq, created_at, updated_at from grown, kept;
