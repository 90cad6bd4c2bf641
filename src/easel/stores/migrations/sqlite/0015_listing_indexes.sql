-- Add indexes for listings with a filter, in the order of their pages, and for pruning.

create index if not exists runs_status_listing_idx on runs(account_id, status, queue_no desc);
create index if not exists runs_session_status_idx on runs(account_id, session_id, status, queue_no desc);
create index if not exists canvas_actions_status_idx on canvas_actions(account_id, canvas_id, status, event_id desc);
create index if not exists canvas_actions_ended_idx on canvas_actions(ended_at) where ended_at is not null;
