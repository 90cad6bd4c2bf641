-- The fenced append: take the next seq if this worker still holds this attempt, and insert the event, in one
-- commit. One run per client.
\set run :client_id + 1
with held as (
    update runs set last_seq = last_seq + 1
     where run_id = :run and owner_id = 'floor' and attempt = 1 and status = 'running'
    returning run_id, last_seq
)
insert into run_events (run_id, seq, event_type, payload)
select run_id, last_seq, 'message.delta', '{"message_id": "message-1", "text": "tick 1\n"}' from held;
