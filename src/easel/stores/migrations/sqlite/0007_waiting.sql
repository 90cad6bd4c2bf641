-- What waits for a person is found without looking through all that a canvas has ever done. Only adds.
create index canvas_actions_waiting_idx on canvas_actions(user_id, canvas_id, created_at) where status = 'asked';
