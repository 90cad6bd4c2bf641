-- easel: no-transaction
-- Add the indexes of pruning and purging: each finds its work without a scan, and is small if there is none.

-- Ended runs whose logs can be trimmed.
create index concurrently if not exists runs_prunable_idx on runs(finished_at) where finished_at is not null and not is_trimmed;
-- Deleted sessions and canvases in the order in which they are purged.
create index concurrently if not exists sessions_deleted_idx on sessions(deleted_at) where deleted_at is not null;
create index concurrently if not exists canvases_deleted_idx on canvases(deleted_at) where deleted_at is not null;
