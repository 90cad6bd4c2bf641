-- Add marks of deleted sessions and canvases, whose rows are purged later. Older code keeps working: until
-- the purge it still finds them.

-- Set when the session is deleted.
alter table sessions add column deleted_at timestamptz;
-- Older code cannot enqueue a run into a deleted session, which the purge would delete with it. Not validated,
-- because no row is marked yet.
alter table sessions add constraint deleted_means_idle check (deleted_at is null or active_run_id is null) not valid;

-- Whether only the last event of the log is left. A column of its own for the index of prunable runs: if that
-- index depended on last_seq, every append would write all indexes of the run.
alter table runs add column is_trimmed boolean not null default false;

-- Set when the canvas is deleted.
alter table canvases add column deleted_at timestamptz;
