-- define: append_run_events
-- Append `events` to the logs of runs, at positions that the statement has taken under the locks of the runs.
-- An event with a `thread_seq` is also in the thread of its session.
logged as (
  insert into run_events (run_id, seq, event_type, visibility, payload, created_at, account_id, session_id,
                          thread_seq)
  select run_id, seq, event_type, visibility, payload::jsonb, clock_timestamp(),
         case when thread_seq is not null then account_id end,
         case when thread_seq is not null then session_id end, thread_seq
    from events
);

-- define: append_canvas_events
-- Append events to the log of a canvas, which the statement has locked and `grown` to `last_seq`.
logged as (
  insert into canvas_events (account_id, canvas_id, seq, event_type, visibility, payload, created_at)
  select account_id, canvas_id, last_seq - cardinality(:event_types) + e.nth, e.event_type, e.visibility,
         e.payload::jsonb, clock_timestamp()
    from grown,
         unnest(:event_types::text[], :visibilities::text[], :payloads::text[])
           with ordinality as e(event_type, visibility, payload, nth)
);
