-- Add what is needed to release artifact references, and the claims of sweeps. Older code keeps working.

-- The log position at which the holder was last known to mention the artifact; null: not known yet. For a
-- run it is set when its log was pruned and the rest of the run still mentions the artifact.
alter table artifact_refs add column mentioned_seq bigint;
-- The position of the canvas's log at which the execution was stored; 0: not known.
alter table canvas_actions add column log_seq bigint not null default 0;

-- Work that one instance at a time does for all, and when the next one may do it.
create table sweeps (
  name text primary key,
  next_at timestamptz not null
);
