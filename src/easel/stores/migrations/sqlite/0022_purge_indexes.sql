-- Add the indexes of pruning and purging: each finds its work without a scan, and is small if there is none.

-- Deleted sessions and canvases in the order in which they are purged.
create index if not exists sessions_deleted_idx on sessions(deleted_at) where deleted_at is not null;
create index if not exists canvases_deleted_idx on canvases(deleted_at) where deleted_at is not null;
