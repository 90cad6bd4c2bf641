-- name: read_logs
-- Return the events of some types of several logs.
select run_id, seq, event_type, visibility, created_at, payload::text as payload
  from run_events where run_id = any(:run_ids::text[]) and event_type = any(:event_types::text[])
 order by run_id, seq;
