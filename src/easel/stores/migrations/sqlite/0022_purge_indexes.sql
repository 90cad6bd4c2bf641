-- Add the indexes of pruning and purging: each finds its work without a scan, and is small if there is none.

-- Executions in the order in which they are pruned.
create index if not exists canvas_actions_ended_idx on canvas_actions(ended_at) where ended_at is not null;
-- Deleted sessions and canvases in the order in which they are purged.
create index if not exists sessions_deleted_idx on sessions(deleted_at) where deleted_at is not null;
create index if not exists canvases_deleted_idx on canvases(deleted_at) where deleted_at is not null;
