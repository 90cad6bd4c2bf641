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
 where r.run_id = :run_id and r.account_id = :account_id
   and (select s.deleted_at is null from sessions s
         where s.account_id = r.account_id and s.session_id = r.session_id)
 group by r.run_id;

-- name: read_board
-- Return one value, the values of an edge, or all values of a board of this account's run. A single row
-- without a key means that there is no such value; no row means that there is no such run.
select b.board, b.edge_id, b.key, b.value::text as value, b.version, b.agent_id, b.node_id, b.kind,
       b.created_at, b.updated_at
  from runs r left join boards b
    on b.run_id = r.run_id and b.board = :board and (:edge_id::text is null or b.edge_id = :edge_id)
     and (:key::text is null or b.key = :key)
 where r.run_id = :run_id and r.account_id = :account_id
   and (select s.deleted_at is null from sessions s
         where s.account_id = r.account_id and s.session_id = r.session_id)
 order by b.edge_id collate "C", b.key collate "C";
