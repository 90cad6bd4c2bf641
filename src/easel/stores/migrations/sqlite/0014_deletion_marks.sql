-- Add marks of deleted sessions and canvases, whose rows are purged later. Older code keeps working: until
-- the purge it still finds them.

-- Set when the session is deleted. Older code cannot enqueue a run into a deleted session, which the purge
-- would delete with it.
alter table sessions add column deleted_at integer constraint deleted_means_idle check (deleted_at is null or active_run_id is null);

-- Set when the canvas is deleted.
alter table canvases add column deleted_at integer;
