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

-- define: order_append
-- Let an append to a log be ordered, if its account is followed.
insert into unordered_appends (appends)
select json_array(json_array(account_id, :log_type, :log_id, :first_seq, :last_seq))
  from account_orders where account_id = :account_id and followed_until is not null;
