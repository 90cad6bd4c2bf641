-- Add an index of the executions that wait for a confirmation.
create index canvas_actions_waiting_idx on canvas_actions(account_id, canvas_id, created_at) where status = 'asked';
