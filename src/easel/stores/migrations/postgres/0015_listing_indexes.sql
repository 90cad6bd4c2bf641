-- easel: no-transaction
-- Add indexes for listings with a filter, in the order of their pages, and for pruning.

create index concurrently if not exists runs_status_listing_idx on runs(account_id, status, queue_no desc);
create index concurrently if not exists runs_session_status_idx on runs(account_id, session_id, status, queue_no desc);
create index concurrently if not exists canvas_actions_status_idx on canvas_actions(account_id, canvas_id, status, event_id desc);
create index concurrently if not exists canvas_actions_ended_idx on canvas_actions(ended_at) where ended_at is not null;
-- Canvases are listed in the order of their bytes, whatever the collation of the database.
create index concurrently if not exists canvases_listing_idx on canvases(account_id, canvas_id collate "C");
create index concurrently if not exists canvases_agent_listing_idx on canvases(account_id, agent_id, canvas_id collate "C");
