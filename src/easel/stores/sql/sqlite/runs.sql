-- define: session_is_live
-- Whether the session of the run is not deleted. A scalar subquery, which always uses the primary key.
(select s.deleted_at is null from sessions s
  where s.account_id = runs.account_id and s.session_id = runs.session_id);

-- name: continue_session
-- The run gets the turn of its session if no other run has it; its message gets the next position in the
-- thread. Returns the last worker of the session, or no row if there is no such session. RX-31, SB-12
update sessions
   set active_run_id = coalesce(active_run_id, :run_id), last_message_at = :now,
       last_thread_seq = last_thread_seq + :spoken
 where account_id = :account_id and session_id = :session_id and deleted_at is null
returning active_run_id = :run_id as has_turn, last_thread_seq, last_worker_id, title;

-- name: title_session
-- Store the title of a session that has none.
update sessions set title = :title where account_id = :account_id and session_id = :session_id;

-- name: open_session
-- Create a session whose first run has the turn. The thread continues after that of a deleted session of the
-- same id. Returns no row if the session is deleted and not purged yet. RS-34
insert into sessions (account_id, session_id, active_run_id, title, created_by, oldest_thread_seq,
                      last_thread_seq, created_at, last_message_at)
select :account_id, :session_id, :run_id, :title, :started_by, coalesce(max(last_thread_seq), 0) + 1,
       coalesce(max(last_thread_seq), 0) + :spoken, :now, :now
  from ended_threads where account_id = :account_id and session_id = :session_id
on conflict do nothing
returning true as has_turn, last_thread_seq, last_worker_id;

-- name: add_message
-- Store a message at its position in the thread.
insert into messages (message_id, account_id, session_id, run_id, role, content, status, error_message,
                      thread_seq, payload, created_at)
values (:message_id, :account_id, :session_id, :run_id, :role, :content, :status, :error, :thread_seq,
        :payload, :now);

-- name: add_hidden_message
-- Store a message that only the model reads. CT-51
insert into hidden_messages (run_id, hidden_no, message_id, content, follows_answer)
select :run_id, coalesce(max(hidden_no), 0) + 1, :message_id, :content, :follows_answer
  from hidden_messages where run_id = :run_id;

-- name: extend_thread
-- Take the next `count` positions in the thread of a session.
update sessions set last_thread_seq = last_thread_seq + :count
 where account_id = :account_id and session_id = :session_id
returning last_thread_seq;

-- name: add_reference
-- Store a reference from a run to an artifact, which is then kept as long as the run.
insert into artifact_refs (account_id, artifact_id, run_id)
select account_id, artifact_id, :run_id from artifacts
 where account_id = :account_id and artifact_id = :artifact_id and is_stored
on conflict do nothing;

-- name: take_queue_no
-- Take the next queue number.
update run_counters set queue_no = queue_no + 1 returning queue_no;

-- define: next_turn
-- The next turn of an account: after its last run that can be claimed, and after the last turn that was
-- claimed of any account. The claimed runs have no later turn, so one row is read.
(select 1 + coalesce((select r.turn_no from runs r indexed by runs_turns_idx
                       where r.account_id = :account_id and r.status = 'queued'
                         and r.turn_no > (select turn_no from run_counters)
                       order by r.turn_no desc limit 1),
                     (select turn_no from run_counters)));

-- name: pass_turns
-- Store the last turn that was claimed.
update run_counters set turn_no = max(turn_no, :turn_no);

-- name: enqueue_run
-- Store a run with its queue number, and with a turn if it can be claimed. RX-31
insert into runs (run_id, account_id, session_id, status, input_text, created_at, max_attempts,
                  idempotency_key, request_digest, input_attachments, started_by, started_role,
                  queue_no, turn_no, turn_at, preferred_worker, waits_for_slot)
values (:run_id, :account_id, :session_id, 'queued', :input_text, :now, :max_attempts, :idempotency_key,
        :request_digest, :input_attachments, :started_by, :started_role,
        :queue_no, case when :is_ready then
          -- include: next_turn
        end, :turn_at, :preferred_worker, :waits_for_slot)
returning *;

-- name: run_by_key
-- Return the run that this account started with this idempotency key.
select * from runs
 where
   -- include: session_is_live
   and account_id = :account_id and idempotency_key = :idempotency_key;

-- name: release_key
-- Let another run use the idempotency key of a run whose session is deleted.
update runs set idempotency_key = null
 where not
   -- include: session_is_live
   and account_id = :account_id and idempotency_key = :idempotency_key;

-- name: get_run
-- Return one run of this account. RX-32
select * from runs
 where
   -- include: session_is_live
   and run_id = :run_id and account_id = :account_id;

-- name: list_runs
-- List the runs of an account, newest first.
select * from runs indexed by runs_listing_idx
 where account_id = :account_id and queue_no < :before
   and
   -- include: session_is_live
 order by queue_no desc
 limit :limit;

-- name: list_runs_by_status
-- List the runs of an account that have one of these statuses, newest first. Each status is read
-- separately, in the order of its index, and at most to the end of the page.
select runs.*
  from (select distinct value as wanted from json_each(:statuses))
 cross join runs indexed by runs_status_listing_idx
 where account_id = :account_id and status = wanted and queue_no < :before
   and queue_no >= coalesce((select queue_no from runs indexed by runs_status_listing_idx
                              where account_id = :account_id and status = wanted and queue_no < :before
                                and
                                -- include: session_is_live
                              order by queue_no desc
                              limit 1 offset :limit - 1), 0)
   and
   -- include: session_is_live
 order by queue_no desc
 limit :limit;

-- name: list_session_runs
-- List the runs of one session, newest first.
select * from runs indexed by runs_session_idx
 where account_id = :account_id and session_id = :session_id and queue_no < :before
   and exists (select 1 from sessions
                where account_id = :account_id and session_id = :session_id and deleted_at is null)
 order by queue_no desc
 limit :limit;

-- name: list_session_runs_by_status
-- List the runs of one session that have one of these statuses, newest first. Each status is read separately,
-- in the order of its index, and at most to the end of the page.
select runs.*
  from (select distinct value as wanted from json_each(:statuses))
 cross join runs indexed by runs_session_status_idx
 where account_id = :account_id and session_id = :session_id and status = wanted and queue_no < :before
   and queue_no >= coalesce((select queue_no from runs indexed by runs_session_status_idx
                              where account_id = :account_id and session_id = :session_id and status = wanted
                                and queue_no < :before
                              order by queue_no desc
                              limit 1 offset :limit - 1), 0)
   and exists (select 1 from sessions
                where account_id = :account_id and session_id = :session_id and deleted_at is null)
 order by queue_no desc
 limit :limit;

-- name: flag_cancel
-- Record a request to cancel a running run, which its worker then stops. Only the first request sets the
-- time. RX-12
update runs set cancel_requested_at = coalesce(cancel_requested_at, :now)
 where run_id = :run_id and status = 'running'
returning *;

-- name: cancel_queued
-- Cancel a queued run; the caller adds its closing events in the same transaction. RS-37
update runs
   set status = 'cancelled', finished_at = :now, last_seq = last_seq + :count,
       cancel_requested_at = coalesce(cancel_requested_at, :now), lease_until = null
 where run_id = :run_id and status = 'queued'
returning *;

-- define: account_is_active
-- Whether the account of the run is not disabled. A scalar subquery, which always uses the primary key.
(select a.disabled_at is null from accounts a where a.account_id = runs.account_id);

-- name: claim_queued
-- Claim the queued runs with the first turns and take the log positions of their opening events. There is
-- one writer, so no other worker claims them at the same time. Runs of disabled accounts are skipped. RX-22,
-- RX-23, RS-60
-- The runs of an account have a turn each, and accounts have the same turns: of runs with the same turn, the
-- one that arrived first is claimed first.
-- A run that prefers another worker is skipped if it got its turn after `prefers_since`, unless the time of
-- its turn is missing or in the future. SB-12
update runs
   set status = 'running', owner_id = :worker_id, attempt = attempt + 1, batch_no = 0,
       last_seq = last_seq + :opens,
       started_at = coalesce(started_at, :now), lease_until = :until
 where run_id in (select run_id from runs indexed by runs_claimable_idx
                   where status = 'queued' and turn_no > :after_turn
                     and (preferred_worker <> :worker_id and turn_at > :prefers_since
                          and turn_at <= :now) is not true
                     and
                     -- include: account_is_active
                   order by turn_no, queue_no limit :capacity)
returning run_id, attempt, account_id, session_id, input_text, input_attachments, max_attempts,
          last_seq, turn_no,
          (:now - created_at) / 1e6 as queued_seconds, (:now - started_at) / 1e6 as running_seconds,
          cancel_requested_at, started_by, started_role;

-- name: claim_expired
-- Claim runs whose claim has expired by the database's clock, and take the log position of the opening event
-- of the next attempt, if an attempt is left. RX-22, RX-37
-- A worker that takes over its own run was frozen, not lost, so the attempt does not count: `max_attempts` is
-- raised by one.
update runs
   set owner_id = :worker_id, attempt = attempt + 1, batch_no = 0, lease_until = :until,
       max_attempts = max_attempts + (owner_id = :worker_id),
       last_seq = last_seq + iif(attempt < max_attempts + (owner_id = :worker_id), :opens, 0)
 where run_id in (select run_id from runs indexed by runs_held_idx
                   where status = 'running' and lease_until < :lease_now
                     and (:last_chance is null
                          or (attempt + 1 = max_attempts + (owner_id = :worker_id)) = :last_chance)
                     and
                     -- include: account_is_active
                   order by lease_until limit :capacity)
returning run_id, attempt, account_id, session_id, input_text, input_attachments, max_attempts,
          last_seq, turn_no,
          (:now - created_at) / 1e6 as queued_seconds, (:now - started_at) / 1e6 as running_seconds,
          cancel_requested_at, started_by, started_role;

-- name: claim_unacknowledged
-- Return and extend the valid claims of a worker that never received them, because the reply was lost. Such a
-- claim is not in `acknowledged`, and nothing was appended under it. RX-49
update runs
   set lease_until = :until
 where run_id in (select run_id from runs indexed by runs_held_idx
                   where status = 'running' and lease_until > :lease_now and owner_id = :worker_id
                     and batch_no = 0
                     and run_id not in (select value from json_each(:acknowledged)))
returning run_id, attempt, account_id, session_id, input_text, input_attachments, max_attempts,
          last_seq - iif(attempt <= max_attempts, :opened, 0) as last_seq, turn_no,
          (:now - created_at) / 1e6 as queued_seconds, (:now - started_at) / 1e6 as running_seconds,
          cancel_requested_at, started_by, started_role;

-- name: role_of_starter
-- Return the role that the person who started a run of a team has in it now. The person's own account has the
-- id of the person.
select role from team_members
 where account_id = :account_id and user_id = :started_by
   and (select p.disabled_at is null from accounts p where p.account_id = :started_by);

-- name: renew_claim
-- Extend the claim of a run if this worker still holds it for this attempt. An expired claim is not extended.
-- Returns when a cancel was requested, or null. RX-26
update runs set lease_until = :until
 where run_id = :run_id and owner_id = :worker_id and attempt = :attempt and status = 'running'
   and lease_until > :lease_now
returning run_id, cancel_requested_at;

-- name: requested_cancels
-- List the runs of this worker that have a cancel request. RX-27
-- The index has running runs only; the index on the owner also contains all ended runs of the worker.
select run_id from runs indexed by runs_held_idx
 where owner_id = :worker_id and status = 'running' and cancel_requested_at is not null;

-- name: append_batch
-- Take the log positions of a batch, if the worker still holds the claim of its attempt. RX-13, RX-25
-- Indexed columns are not set, because SQLite would write their indexes even if the values do not change.
update runs
   set last_seq = last_seq + :count, batch_no = :batch_no, batch_seq = last_seq + :count,
       error_message = :error
 where run_id = :run_id and owner_id = :worker_id and attempt = :attempt
   and status = 'running' and lease_until > :lease_now and batch_no = :batch_no - 1
returning last_seq, cancel_requested_at;

-- name: append_last_batch
-- Take the log positions of the last batch of a run and end the run, if the worker still holds the claim of
-- its attempt. RX-13, RX-28
update runs
   set last_seq = last_seq + :count, batch_no = :batch_no, batch_seq = last_seq + :count,
       error_message = :error,
       status = :ends_as, finished_at = :now, lease_until = null
 where run_id = :run_id and owner_id = :worker_id and attempt = :attempt
   and status = 'running' and lease_until > :lease_now and batch_no = :batch_no - 1
returning last_seq, cancel_requested_at;

-- name: add_event
-- Store one event at its position in the log of a run. RX-25
  -- include: append_run_event

-- name: repeated_batch
-- Return the first answer to a batch that is already stored. The worker repeats a batch when the reply was
-- lost. RX-29
select batch_seq as last_seq, cancel_requested_at,
       (select max(e.thread_seq) from run_events e
         where e.run_id = runs.run_id and e.seq > batch_seq - :count and e.seq <= batch_seq) as thread_seq
  from runs
 where run_id = :run_id and owner_id = :worker_id and attempt = :attempt and batch_no = :batch_no;

-- name: pass_turn
-- Pass the turn of an ended run to the oldest waiting run of its session, if there is one. Also stores the
-- worker of the ended run.
update sessions
   set last_worker_id = coalesce(:worker_id, last_worker_id),
       active_run_id = (select w.run_id from runs w indexed by runs_waiting_idx
                         where w.account_id = sessions.account_id and w.session_id = sessions.session_id
                           and w.status = 'queued' and w.turn_no is null
                         order by w.queue_no limit 1)
 where account_id = :account_id and session_id = :session_id and active_run_id = :run_id
returning active_run_id, last_worker_id;

-- name: give_turn
-- Give the turn of a session to a run, so that it can be claimed. The run prefers the last worker of the
-- session. SB-12
update runs
   set turn_at = :now, preferred_worker = :preferred_worker, waits_for_slot = 0,
       turn_no =
         -- include: next_turn
 where account_id = :account_id and run_id = :run_id;

-- name: wait_for_slot
-- Let the run that has the turn of its session wait until its account executes fewer runs.
update runs set waits_for_slot = 1 where run_id = :run_id;

-- name: count_slots
-- Count the runs of an account that have a turn and have not ended, up to `limit`.
select count(*) as used
  from (select 1 from runs indexed by one_turn_per_session
         where account_id = :account_id and turn_no is not null and status in ('queued', 'running')
         limit :limit);

-- name: list_slotless
-- List runs of an account that wait until it executes fewer runs, in the order of their arrival.
select run_id from runs indexed by runs_slotless_idx
 where account_id = :account_id and waits_for_slot and status = 'queued' order by queue_no limit :limit;

-- name: next_slotless_account
-- Return the next account of which a run waits for a slot.
select min(account_id) as account_id from runs
 where waits_for_slot and status = 'queued' and account_id > :after_account;

-- name: count_queued
-- Count the queued runs of an account, up to `limit`.
select count(*) as queued
  from (select 1 from runs indexed by runs_status_listing_idx
         where account_id = :account_id and status = 'queued' limit :limit);

-- name: release_claim
-- Return a claimed run to its place in the queue, where any worker can claim it. The attempt does not count:
-- `max_attempts` is raised by one. RX-49
update runs
   set status = 'queued', owner_id = null, lease_until = null, max_attempts = max_attempts + 1,
       preferred_worker = null
 where run_id = :run_id and owner_id = :worker_id and attempt = :attempt and status = 'running'
returning run_id;

-- name: log_bounds
-- Return the first and the last position of a log, and the status of its run, for the account that owns the
-- run. RX-54
select oldest_seq, last_seq, status from runs
 where
   -- include: session_is_live
   and run_id = :run_id and account_id = :account_id;

-- name: log_heads
-- Return the last position of each of these logs. An instance polls once for all its subscribers.
select run_id, last_seq from runs
 where
   -- include: session_is_live
   and run_id in (select value from json_each(:run_ids));

-- name: events_after
-- Return a page of a run's log. RX-36
select seq, event_type, visibility, created_at, payload
  from run_events where run_id = :run_id and seq > :cursor order by seq limit :limit;

-- name: queue_depth
-- Count the runs that have not ended: ready to be claimed, waiting for their turn, and running.
select count(*) filter (where status = 'queued' and turn_no is not null) as ready,
       count(*) filter (where status = 'queued' and turn_no is null) as waiting,
       count(*) filter (where status = 'running') as running
  from runs where status in ('queued', 'running');

-- name: list_prunable_runs
-- List runs that ended long ago and whose logs have more than one event.
select run_id from runs
 where finished_at is not null and oldest_seq < last_seq and finished_at < :before
 order by finished_at limit :limit;

-- name: trim_log
-- Move the start of an ended run's log by at most `step` events, so that other writers are not delayed. The
-- last event is kept.
update runs set oldest_seq = min(last_seq, oldest_seq + :step)
 where run_id = :run_id and finished_at is not null and oldest_seq < last_seq
returning oldest_seq, oldest_seq < last_seq as is_unfinished;

-- name: trim_thread
-- Move the start of the thread past the events that `delete_events` deletes.
update sessions
   set oldest_thread_seq = max(oldest_thread_seq, 1 + coalesce(
         (select max(thread_seq) from run_events
           where run_id = :run_id and seq < :oldest_seq and thread_seq is not null), 0))
 where (account_id, session_id) in (select account_id, session_id from runs where run_id = :run_id);

-- name: delete_events
-- Delete the events before the start of a run's log.
delete from run_events where run_id = :run_id and seq < :oldest_seq;

-- name: probe
-- Write one row, to check that the database accepts durable writes.
insert into probes (only_row, probed_at) values (1, :now)
on conflict (only_row) do update set probed_at = excluded.probed_at;
