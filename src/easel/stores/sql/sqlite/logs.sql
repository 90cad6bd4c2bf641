-- define: append_run_event
-- Store one event at its position in the log of a run, with the members of `patch` if they were not known
-- when the event was made.
insert into run_events (run_id, seq, event_type, visibility, payload, created_at, account_id, session_id,
                        thread_seq)
values (:run_id, :seq, :event_type, :visibility, coalesce(json_patch(:payload, :patch), :payload), :now,
        :account_id, :session_id, :thread_seq);

-- define: append_canvas_event
-- Store one event at its position in the log of a canvas.
insert into canvas_events (account_id, canvas_id, seq, event_type, visibility, payload, created_at)
values (:account_id, :canvas_id, :seq, :event_type, :visibility, :payload, :now);
