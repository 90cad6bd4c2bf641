-- Let a session prefer its last worker. Older code keeps working: its runs have no preference.

-- The worker that ended the session's last run.
alter table sessions add column last_worker_id text;

alter table runs
  -- When the run got the turn of its session; null if older code gave it.
  add column turn_at timestamptz,
  -- The worker that may claim the run first, for a moment after turn_at; null means any.
  add column preferred_worker text;
