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

-- define: order_run_appends
-- Let the appends to runs that have `grown` from `base` to `last_seq` be ordered, if the account is followed.
ordered as (
  insert into unordered_appends (appends)
  select json_agg(json_build_array(g.account_id, 'run', g.run_id, g.base + 1, g.last_seq))
    from grown g join account_orders o on o.account_id = g.account_id and o.followed_until is not null
   where g.last_seq > g.base
  having count(*) > 0
);

-- define: append_canvas_events
-- Append events to the log of a canvas, which the statement has locked and `grown` to `last_seq`, and let the
-- append be ordered, if the account is followed.
logged as (
  insert into canvas_events (account_id, canvas_id, seq, event_type, visibility, payload, created_at)
  select account_id, canvas_id, last_seq - cardinality(:event_types) + e.nth, e.event_type, e.visibility,
         e.payload::jsonb, clock_timestamp()
    from grown,
         unnest(:event_types::text[], :visibilities::text[], :payloads::text[])
           with ordinality as e(event_type, visibility, payload, nth)
), ordered as (
  insert into unordered_appends (appends)
  select json_build_array(json_build_array(g.account_id, 'canvas', g.canvas_id,
                                           g.last_seq - cardinality(:event_types) + 1, g.last_seq))
    from grown g join account_orders o on o.account_id = g.account_id and o.followed_until is not null
   where cardinality(:event_types) > 0
);
