-- Pin statistics whose real values can lead to a plan that reads a whole log or a whole table.

-- Trimmed logs have one event each. If most runs have one, the index on created_at seems as good as the
-- primary key, and each page of a log would read and sort the whole log. Assume 50 events per run.
alter table run_events alter column run_id set (n_distinct = -0.02);
-- If there are few actions, it seems best to read all records from the newest on until a page of one action is
-- found, which never ends for a rare action. Assume 100 records per action.
alter table audit alter column action set (n_distinct = -0.01);
-- If all rows have one status, the index on the status seems useless, but a listing of another status needs it.
alter table runs alter column status set (n_distinct = 5);
alter table canvas_actions alter column status set (n_distinct = 5);
-- If all canvases have one agent, the index on the agent seems useless in the same way. Assume 100 canvases per
-- agent.
alter table canvases alter column agent_id set (n_distinct = -0.01);
-- If most sessions have one run and most canvases one execution, every index that begins with the session or
-- the canvas seems equally good. Assume 50 runs per session and 100 executions per canvas.
alter table runs alter column session_id set (n_distinct = -0.02);
alter table canvas_actions alter column canvas_id set (n_distinct = -0.01);
-- The new values take effect when they are collected. Empty tables are left to autovacuum: Postgres would plan
-- for a table that is known to be empty, and read all of it until autovacuum collects the values again.
do $$
begin
  if exists (select 1 from run_events) then analyze run_events (run_id); end if;
  if exists (select 1 from audit) then analyze audit (action); end if;
  if exists (select 1 from runs) then analyze runs (status, session_id); end if;
  if exists (select 1 from canvas_actions) then analyze canvas_actions (status, canvas_id); end if;
  if exists (select 1 from canvases) then analyze canvases (agent_id); end if;
end $$;
