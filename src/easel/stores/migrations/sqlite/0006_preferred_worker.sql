-- Let a session prefer its last worker. Older code keeps working: its runs have no preference.
-- Times are whole microseconds since 1970, UTC.

-- The worker that ended the session's last run.
alter table sessions add column last_worker_id text;

-- When the run got the turn of its session; null if older code gave it.
alter table runs add column turn_at integer;
-- The worker that may claim the run first, for a moment after turn_at; null means any.
alter table runs add column preferred_worker text;
