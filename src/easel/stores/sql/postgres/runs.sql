-- define: session_is_live
-- Whether the session of the run is not deleted. A scalar subquery, which always uses the primary key.
(select s.deleted_at is null from sessions s
  where s.account_id = runs.account_id and s.session_id = runs.session_id);

-- define: last_turn
-- The turn after which the next turn of the account comes: that of its last run that can be claimed, but none
-- before the last turn that was claimed of any account. The claimed runs have no later turn, so few rows are
-- read.
greatest((select pg_sequence_last_value('claimed_turns')),
         (select r.turn_no from runs r
           where r.account_id = turns.account_id and r.status = 'queued'
             and r.turn_no > (select pg_sequence_last_value('claimed_turns'))
           order by r.turn_no desc limit 1));

-- name: enqueue_run
-- Store a run and the message that it answers. The run gets the turn of its session if no other run has it,
-- and prefers the last worker of the session. The session row is locked first, so that runs and messages
-- arrive in one order in the queue and in the thread. RX-31, SB-12
-- A session is created only if this statement's snapshot has none: then the snapshot also has the end of a
-- deleted thread of the same id. Returns no row if the session was created or deleted concurrently, or is
-- deleted and not purged yet; the caller purges it and repeats the statement. RS-34
-- A long message has deltas, which precede it in the thread. Their `seq` is 0 or less, before the run's log,
-- so that only the thread shows them.
-- The message ends the leases of the session's runs. CT-18
-- If an account may execute only `max_runs` runs at once, the run waits for a slot, and `give_slots` gives it
-- one if there is one. `count_queued` fails if the account has more than `max_queued` queued runs.
-- If this creates or titles the session, it appends to the log of the account. The title was missing if it is
-- missing in the statement's snapshot, which is read only if the title is now that of this run.
with ended as (
  select coalesce(max(last_thread_seq), 0) as seq from ended_threads
   where account_id = :account_id and session_id = :session_id
), continued as (
  update sessions
     set active_run_id = coalesce(active_run_id, :run_id), last_message_at = now(),
         title = coalesce(title, :title),
         last_thread_seq = last_thread_seq + :spoken::int
   where account_id = :account_id and session_id = :session_id and deleted_at is null
  returning active_run_id = :run_id as has_turn, last_thread_seq, last_worker_id,
            case when title = :title and (select s.title is null from sessions s
                                           where s.account_id = :account_id and s.session_id = :session_id)
                 then 'session.renamed' end as event_type
), created as (
  insert into sessions (account_id, session_id, active_run_id, title, created_by, oldest_thread_seq,
                        last_thread_seq)
  select :account_id, :session_id, :run_id, :title, :started_by, ended.seq + 1,
         ended.seq + :spoken::int
    from ended
   where not exists (select 1 from sessions where account_id = :account_id and session_id = :session_id)
  on conflict do nothing
  returning true as has_turn, last_thread_seq, last_worker_id, 'session.created'
), place as (
  select * from continued union all select * from created
), turns as (
  select
         -- include: last_turn
         as last_turn
    from (select :account_id::text as account_id) turns
), queued as (
  insert into runs (run_id, account_id, session_id, status, input_text, max_attempts, idempotency_key,
                    request_digest, input_attachments, started_by, started_role,
                    turn_no, turn_at, preferred_worker, waits_for_slot)
  select :run_id, :account_id, :session_id, 'queued', :input_text, :max_attempts, :idempotency_key,
         :request_digest, :input_attachments::text::jsonb, :started_by, :started_role,
         case when is_ready then turns.last_turn + 1 end, case when is_ready then clock_timestamp() end,
         case when is_ready then last_worker_id end, has_turn and not is_ready
    from place cross join turns cross join lateral (select has_turn and :max_runs::int = 0 as is_ready) r
  returning *
), asked as (
  insert into messages (message_id, account_id, session_id, run_id, role, content, thread_seq, payload)
  select :message_id::text, :account_id, :session_id, :run_id, 'user', :content::text::jsonb, last_thread_seq,
         :payload::text::jsonb from place
   where :message_id is not null
), events as (
  select :run_id as run_id, nth - :spoken + 1 as seq, 'message.delta' as event_type, 'public' as visibility,
         payload, :account_id as account_id, :session_id as session_id,
         place.last_thread_seq - :spoken + nth as thread_seq
    from place cross join unnest(:deltas::text[]) with ordinality as d(payload, nth)
),
  -- include: append_run_events
, referred as (
  insert into artifact_refs (account_id, artifact_id, run_id)
  select account_id, artifact_id, :run_id from artifacts a, place
   where account_id = :account_id and artifact_id = any(:refers_to::text[]) and is_stored
     for key share of a
)
select queued.*, place.last_thread_seq as thread_seq,
       case when :message_id is not null
            then end_leases(:account_id, :session_id, null, :run_id, :ended_lease::text) end as preempted,
       case when event_type is not null
            then append_account_event(:account_id, event_type, :session_event::text) end as account_seq,
       case when :max_runs > 0 then give_slots(:account_id, :max_runs) end as given,
       case when :max_queued::int > 0 then count_queued(:account_id, :max_queued) end as queued_count
  from queued, place;

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
select * from runs
 where account_id = :account_id and queue_no < :before
   and
   -- include: session_is_live
 order by queue_no desc
 limit :limit;

-- name: list_runs_by_status
-- List the runs of an account that have one of these statuses, newest first. Each status is read
-- separately, in the order of its index.
select r.*
  from (select distinct unnest(:statuses::text[]) as status) s
 cross join lateral (select * from runs
                      where account_id = :account_id and status = s.status and queue_no < :before
                        and
                        -- include: session_is_live
                      order by queue_no desc
                      limit :limit) r
 order by r.queue_no desc
 limit :limit;

-- name: list_session_runs
-- List the runs of one session, newest first.
select * from runs
 where account_id = :account_id and session_id = :session_id and queue_no < :before
   and exists (select 1 from sessions
                where account_id = :account_id and session_id = :session_id and deleted_at is null)
 order by queue_no desc
 limit :limit;

-- name: list_session_runs_by_status
-- List the runs of one session that have one of these statuses, newest first. Each status is read separately,
-- in the order of its index.
select r.*
  from (select distinct unnest(:statuses::text[]) as status) s
 cross join lateral (select * from runs
                      where account_id = :account_id and session_id = :session_id and status = s.status
                        and queue_no < :before
                        and exists (select 1 from sessions
                                     where account_id = :account_id and session_id = :session_id
                                       and deleted_at is null)
                      order by queue_no desc
                      limit :limit) r
 order by r.queue_no desc
 limit :limit;

-- name: lock_session
-- Lock a session. Every transaction that locks both a session and its runs locks the session first, so that
-- no deadlock occurs.
select 1 from sessions where account_id = :account_id and session_id = :session_id for update;

-- name: lock_run
-- Return a run and lock it until the transaction ends.
select * from runs
 where
   -- include: session_is_live
   and run_id = :run_id and account_id = :account_id
   for update;

-- name: flag_cancel
-- Record a request to cancel a running run, which its worker then stops. Only the first request sets the
-- time. RX-12
update runs set cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp())
 where run_id = :run_id and status = 'running'
returning *;

-- name: cancel_queued
-- Cancel a queued run and append its closing events. Requires the lock of the run. RS-37
with ended as (
  update runs
     set status = 'cancelled', finished_at = statement_timestamp(),
         last_seq = last_seq + cardinality(:event_types::text[]),
         cancel_requested_at = coalesce(cancel_requested_at, statement_timestamp()), lease_until = null
   where run_id = :run_id and status = 'queued'
  returning *
), threaded as (
  update sessions s set last_thread_seq = s.last_thread_seq + :spoken::int
    from ended
   where :spoken > 0 and s.account_id = ended.account_id and s.session_id = ended.session_id
  returning s.last_thread_seq - :spoken as base, s.last_thread_seq
), events as (
  select ended.run_id, ended.last_seq - cardinality(:event_types::text[]) + e.nth as seq, e.event_type,
         e.visibility, e.payload, ended.account_id, ended.session_id, t.base + e.spoken_nth as thread_seq
    from ended
    cross join unnest(:event_types::text[], :visibilities::text[], :payloads::text[], :spoken_nths::int[])
      with ordinality as e(event_type, visibility, payload, spoken_nth, nth)
    left join threaded t on true
),
  -- include: append_run_events
, grown as (
  select run_id, account_id, last_seq - cardinality(:event_types) as base, last_seq from ended
),
  -- include: order_run_appends
, answered as (
  insert into messages (message_id, account_id, session_id, run_id, role, content, status, thread_seq,
                        payload)
  select :message_id::text, ended.account_id, ended.session_id, ended.run_id, 'assistant',
         :content::text::jsonb, 'cancelled', t.last_thread_seq, :payload::text::jsonb
    from ended, threaded t
   where :message_id is not null
), referred as (
  insert into artifact_refs (account_id, artifact_id, run_id)
  select a.account_id, a.artifact_id, ended.run_id
    from ended
    join artifacts a on a.account_id = ended.account_id and a.artifact_id = any(:refers_to::text[])
     and a.is_stored
     for key share of a
  on conflict do nothing
)
select ended.*, t.last_thread_seq as thread_seq from ended left join threaded t on true;

-- define: opening_events
-- The opening event of each run that was `taken`, with the attempt and the run id filled in.
events as (
  select run_id, last_seq as seq, :event_type::text as event_type, :visibility::text as visibility,
         jsonb_set(jsonb_set(:opening::text::jsonb, '{attempt}', to_jsonb(attempt)), '{provenance,run_id}',
                   to_jsonb(run_id)) as payload,
         account_id, session_id, null::bigint as thread_seq
    from taken where opens
), grown as (
  select run_id, account_id, last_seq - 1 as base, last_seq from taken where opens
);

-- define: claims
-- The claims of the runs that were `taken`, with the log position before the opening event. Whether the
-- session has a document is a scalar subquery instead of `exists`, for which Postgres may read all documents.
-- `role_now` is the role that the person who started the run has in its account now; null: none. A person is
-- admin of their own account, which has the same id. RS-76
select run_id, attempt, account_id, session_id, input_text, input_attachments, max_attempts,
       last_seq - opens::int as last_seq, turn_no,
       extract(epoch from clock_timestamp() - created_at)::float8 as queued_seconds,
       extract(epoch from clock_timestamp() - started_at)::float8 as running_seconds,
       cancel_requested_at is not null as cancel_requested, started_by, started_role,
       case when started_by = taken.account_id then 'admin' when started_by is not null then
         (select m.role from team_members m
           where m.account_id = taken.account_id and m.user_id = taken.started_by
             and (select p.disabled_at is null from accounts p where p.account_id = m.user_id))
       end as role_now,
       (select true from documents d
         where d.account_id = taken.account_id and d.session_id = taken.session_id and d.is_active
         limit 1) is not null as has_document
  from taken;

-- define: account_is_active
-- Whether the account of the run is not disabled. A scalar subquery, which always uses the primary key.
(select a.disabled_at is null from accounts a where a.account_id = runs.account_id);

-- name: claim_queued
-- Claim the queued runs with the first turns and append their opening events. Rows that other workers have
-- locked are skipped, and so are runs of disabled accounts. RX-22, RX-23, RS-60
-- The runs of an account have a turn each, and accounts have the same turns: of runs with the same turn, the
-- one that arrived first is claimed first. A run that becomes ready gets no turn before the last one that was
-- claimed, which a sequence has: it needs no lock, and is not undone with a claim.
-- A run that prefers another worker is skipped for `prefer_seconds` after it got its turn, unless the time of
-- its turn is missing or in the future. SB-12
with next as (
  select run_id from runs
   where status = 'queued' and turn_no > :after_turn
     and (preferred_worker <> :worker_id
          and turn_at > clock_timestamp() - make_interval(secs => :prefer_seconds)
          and turn_at <= clock_timestamp()) is not true
     and
     -- include: account_is_active
   order by turn_no, queue_no
   limit :capacity
     for update skip locked
), taken as (
  update runs r
     set status = 'running', owner_id = :worker_id, attempt = r.attempt + 1, batch_no = 0,
         last_seq = r.last_seq + (:opening::text is not null)::int,
         started_at = coalesce(r.started_at, clock_timestamp()),
         lease_until = clock_timestamp() + make_interval(secs => :seconds)
    from next
   where r.run_id = next.run_id
  returning r.*, :opening::text is not null as opens
),
  -- include: opening_events
,
  -- include: append_run_events
,
  -- include: order_run_appends
, passed as (
  select setval('claimed_turns', turn_no)
    from (select max(turn_no) as turn_no from taken) t
   where turn_no > (select pg_sequence_last_value('claimed_turns'))
)
  -- include: claims
 where (select count(*) from passed) >= 0;

-- name: claim_expired
-- Claim runs whose claim has expired by the database's clock, and append the opening event of the next
-- attempt, if an attempt is left. RX-22, RX-37
-- A worker that takes over its own run was frozen, not lost, so the attempt does not count: `max_attempts` is
-- raised by one.
with lost as (
  select run_id, (owner_id = :worker_id)::int as refund,
         :opening::text is not null and attempt < max_attempts + (owner_id = :worker_id)::int as opens
    from runs
   where status = 'running' and lease_until < clock_timestamp()
     and (:last_chance::bool is null
          or (attempt + 1 = max_attempts + (owner_id = :worker_id)::int) = :last_chance)
     and
     -- include: account_is_active
   order by lease_until
   limit :capacity
     for update skip locked
), taken as (
  update runs r
     set owner_id = :worker_id, attempt = r.attempt + 1, batch_no = 0, last_seq = r.last_seq + opens::int,
         max_attempts = r.max_attempts + refund,
         lease_until = clock_timestamp() + make_interval(secs => :seconds)
    from lost
   where r.run_id = lost.run_id
  returning r.*, lost.opens
),
  -- include: opening_events
,
  -- include: append_run_events
,
  -- include: order_run_appends
  -- include: claims
;

-- name: claim_unacknowledged
-- Return and extend the valid claims of a worker that never received them, because the reply was lost. Such a
-- claim is not in `acknowledged`, and nothing was appended under it. RX-49
-- Rows that another transaction has locked are skipped.
with held as materialized (
  select run_id, owner_id from runs where status = 'running'
), free as (
  select r.run_id from held join runs r using (run_id)
   where held.owner_id = :worker_id and not r.run_id = any(:acknowledged::text[])
     for update of r skip locked
), taken as (
  update runs r set lease_until = clock_timestamp() + make_interval(secs => :seconds)
    from free
   where r.run_id = free.run_id
     and r.owner_id = :worker_id and r.status = 'running' and r.batch_no = 0
     and r.lease_until > clock_timestamp()
  returning r.*, :opened::bool and r.attempt <= r.max_attempts as opens
)
  -- include: claims
;

-- name: renew_claims
-- Extend the claims that this worker still holds. Expired claims are not extended. Returns whether a cancel
-- was requested. A run that another transaction has locked is skipped, so that it does not delay the others:
-- if its claim is valid, it is returned with null, and the next renewal extends it. RX-26
with held as (
  select run_id from runs where run_id = any(:run_ids::text[]) order by run_id for update skip locked
), renewed as (
  update runs r set lease_until = clock_timestamp() + make_interval(secs => :seconds)
    from held join unnest(:run_ids::text[], :attempts::int[]) as a(run_id, attempt) using (run_id)
   where r.run_id = held.run_id and r.owner_id = :worker_id and r.attempt = a.attempt
     and r.status = 'running' and r.lease_until > clock_timestamp()
  returning r.run_id, r.cancel_requested_at is not null as cancel_requested
)
select run_id, cancel_requested from renewed
union all
select r.run_id, null
  from runs r join unnest(:run_ids::text[], :attempts::int[]) as a(run_id, attempt) using (run_id)
 where r.run_id = any(:run_ids) and r.run_id not in (select run_id from held)
   and r.owner_id = :worker_id and r.attempt = a.attempt
   and r.status = 'running' and r.lease_until > clock_timestamp();

-- name: requested_cancels
-- List the runs of this worker that have a cancel request. RX-27
-- The running runs are selected first, because the index on the owner also contains all ended runs of the
-- worker.
with held as materialized (select run_id, owner_id from runs
                            where status = 'running' and cancel_requested_at is not null)
select run_id from held where owner_id = :worker_id;

-- name: append_batches
-- Append each batch to its run's log, if the worker still holds the claim of its attempt, and end the run if
-- the batch is its last one. RX-13, RX-25, RX-28
-- Narrative events also get a position in the thread of the session. A session is locked only if its batch
-- ends the run or has narrative events. A batch whose session or run another transaction has locked is
-- skipped and has no row in the result, so that it does not delay the others; the row of a batch that was
-- refused has no position. If a run ends, `pass_turn` stores the new end of the thread, so that the session
-- row is updated once.
with asked as (
  select *
    from unnest(:run_ids::text[], :owner_ids::text[], :attempts::int[], :batch_nos::int[], :counts::int[],
                :spoken::int[], :ends_as::text[], :errors::text[],
                :message_ids::text[], :contents::text[])
      as a(run_id, owner_id, attempt, batch_no, count, spoken, ends_as, error, message_id, content)
), placed as (
  -- A lateral subquery instead of a join: the planner then estimates the number of rows correctly, and uses a
  -- hash join in the next parts.
  select a.run_id, s.last_thread_seq
    from (select *
            from unnest(:speaking_run_ids::text[], :account_ids::text[], :session_ids::text[])
                   as a(run_id, account_id, session_id)
           order by account_id, session_id) a
   cross join lateral (select last_thread_seq from sessions s
                        where s.account_id = a.account_id and s.session_id = a.session_id
                          for update skip locked) s
), held as (
  -- Counting `placed` makes Postgres lock all sessions before the first run.
  select r.run_id, p.last_thread_seq
    from runs r left join placed p using (run_id)
   where r.run_id = any(:run_ids) and (select count(*) from placed) >= 0
     and (p.run_id is not null or not r.run_id = any(:speaking_run_ids))
   order by r.run_id
     for update of r skip locked
), grown as (
  update runs r
     set last_seq = r.last_seq + a.count, batch_no = a.batch_no, batch_seq = r.last_seq + a.count,
         status = coalesce(a.ends_as, r.status), error_message = a.error,
         finished_at = case when a.ends_as is not null then clock_timestamp() end,
         lease_until = case when a.ends_as is null then r.lease_until end
    from held join asked a using (run_id)
   where r.run_id = held.run_id and r.owner_id = a.owner_id and r.attempt = a.attempt
     and r.status = 'running' and r.lease_until > clock_timestamp() and r.batch_no = a.batch_no - 1
  returning r.run_id, r.account_id, r.session_id, r.last_seq - a.count as base, r.last_seq,
            r.cancel_requested_at is not null as cancel_requested, a.spoken,
            held.last_thread_seq as thread_base, a.ends_as, a.error, a.message_id, a.content
), threaded as (
  update sessions s set last_thread_seq = g.thread_base + g.spoken
    from grown g
   where g.spoken > 0 and g.ends_as is null and s.account_id = g.account_id and s.session_id = g.session_id
), events as (
  select e.run_id, g.base + e.nth as seq, e.event_type, e.visibility, e.payload, g.account_id, g.session_id,
         g.thread_base + e.spoken_nth as thread_seq
    from unnest(:event_run_ids::text[], :event_nths::int[], :event_types::text[], :visibilities::text[],
                :payloads::text[], :spoken_nths::int[])
      as e(run_id, nth, event_type, visibility, payload, spoken_nth)
    join grown g using (run_id)
),
  -- include: append_run_events
,
  -- include: order_run_appends
, answered as (
  insert into messages (message_id, account_id, session_id, run_id, role, content, status, error_message,
                        thread_seq)
  select message_id, account_id, session_id, run_id, 'assistant', content::jsonb, ends_as, error,
         thread_base + spoken from grown
   where message_id is not null
), referred as (
  insert into artifact_refs (account_id, artifact_id, run_id)
  select a.account_id, a.artifact_id, g.run_id
    from unnest(:referring_run_ids::text[], :refers_to::text[]) as r(run_id, artifact_id)
    join grown g using (run_id)
    join artifacts a on a.account_id = g.account_id and a.artifact_id = r.artifact_id and a.is_stored
     for key share of a
  on conflict do nothing
)
select h.run_id, g.last_seq, g.cancel_requested,
       case when g.spoken > 0 then g.thread_base + g.spoken end as thread_seq
  from held h left join grown g using (run_id);

-- name: add_hidden_messages
-- Store messages that only the model reads. Requires the lock of the run. CT-51
insert into hidden_messages (run_id, hidden_no, message_id, content, follows_answer)
select :run_id::text,
       m.nth + (select coalesce(max(hidden_no), 0) from hidden_messages where run_id = :run_id),
       m.message_id, m.content::jsonb, :follows_answer
  from unnest(:message_ids::text[], :contents::text[]) with ordinality as m(message_id, content, nth);

-- name: repeated_batch
-- Return the first answer to a batch that is already stored. The worker repeats a batch when the reply was
-- lost. RX-29
select batch_seq as last_seq, cancel_requested_at is not null as cancel_requested,
       (select max(e.thread_seq) from run_events e
         where e.run_id = runs.run_id and e.seq > batch_seq - :count and e.seq <= batch_seq) as thread_seq
  from runs
 where run_id = :run_id and owner_id = :worker_id and attempt = :attempt and batch_no = :batch_no;

-- name: pass_turn
-- Pass the turn of each ended run to the oldest waiting run of its session, if there is one. Also stores the
-- end of the thread and the worker of the ended run, so that the session row is updated once. Requires the
-- locks of the sessions. If an account may execute only `max_runs` runs at once, the next run waits for a
-- slot.
with ended as (
  select * from unnest(:account_ids::text[], :session_ids::text[], :run_ids::text[], :thread_seqs::bigint[],
                       :worker_ids::text[])
    as e(account_id, session_id, run_id, thread_seq, worker_id)
), passed as (
  update sessions s
     set last_thread_seq = coalesce(e.thread_seq, s.last_thread_seq),
         last_worker_id = coalesce(e.worker_id, s.last_worker_id),
         active_run_id = case when s.active_run_id is distinct from e.run_id then s.active_run_id else
                           (select w.run_id from runs w
                             where w.account_id = s.account_id and w.session_id = s.session_id
                               and w.status = 'queued' and w.turn_no is null
                             order by w.queue_no limit 1) end
    from ended e
   where s.account_id = e.account_id and s.session_id = e.session_id
  returning s.account_id, s.active_run_id, s.last_worker_id
), turns as (
  select account_id,
         -- include: last_turn
         as last_turn
    from passed as turns group by account_id
), given as (
  select active_run_id as run_id, last_worker_id,
         last_turn + row_number() over (partition by account_id order by active_run_id) as turn_no
    from passed join turns using (account_id) where active_run_id is not null
)
update runs r
   set turn_no = case when :max_runs::int = 0 then given.turn_no end, turn_at = clock_timestamp(),
       preferred_worker = given.last_worker_id, waits_for_slot = :max_runs > 0
  from given where r.run_id = given.run_id and r.turn_no is null
returning r.account_id, r.session_id, r.preferred_worker;

-- name: give_slots
-- Give the free slots of an account, of `max_runs`, to the runs that wait for one. 0: all get one.
select give_slots(:account_id, :max_runs) as given;

-- name: next_slotless_account
-- Return the next account of which a run waits for a slot.
select min(account_id) as account_id from runs
 where waits_for_slot and status = 'queued' and account_id > :after_account;

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
   and run_id = any(:run_ids::text[]);

-- name: events_after
-- Return a page of a run's log. RX-36
select seq, event_type, visibility, created_at, payload::text as payload
  from run_events where run_id = :run_id and seq > :cursor order by seq limit :limit;

-- name: queue_depth
-- Count the runs that have not ended: ready to be claimed, waiting for their turn, and running.
select count(*) filter (where status = 'queued' and turn_no is not null) as ready,
       count(*) filter (where status = 'queued' and turn_no is null) as waiting,
       count(*) filter (where status = 'running') as running
  from runs where status in ('queued', 'running');

-- name: list_prunable_runs
-- List runs that ended long ago and whose logs are not trimmed.
select run_id, account_id, session_id from runs
 where not is_trimmed and finished_at < statement_timestamp() - make_interval(secs => :seconds)
 order by finished_at limit :limit;

-- name: trim_logs
-- Delete events at the start of the logs of ended runs of one session, at most `step` in total, and move the
-- start of the thread past them. The last event of a log is kept. Deletes nothing if another transaction has
-- locked the session.
with place as (
  select 1 from sessions where account_id = :account_id and session_id = :session_id for update skip locked
), held as (
  -- Counting `place` makes Postgres lock the session before the first run.
  select run_id, oldest_seq, last_seq from runs
   where run_id = any(:run_ids::text[]) and (select count(*) from place) > 0
     and finished_at is not null and not is_trimmed
     for update skip locked
), sized as (
  select run_id, oldest_seq, greatest(last_seq - oldest_seq, 0) as size from held
), counted as (
  select run_id, oldest_seq, size, sum(size) over (order by run_id) - size as before from sized
), shortened as (
  update runs r
     set oldest_seq = c.oldest_seq + least(c.size, :step::bigint - c.before),
         is_trimmed = c.size <= :step::bigint - c.before
    from counted c
   where r.run_id = c.run_id and c.before < :step
  returning r.run_id, r.oldest_seq, r.is_trimmed, c.size
), gone as (
  delete from run_events e using shortened s where e.run_id = s.run_id and e.seq < s.oldest_seq
  returning e.thread_seq
), forgotten as (
  update sessions s set oldest_thread_seq = greatest(s.oldest_thread_seq, g.up_to + 1)
    from (select max(thread_seq) as up_to from gone) g
   where s.account_id = :account_id and s.session_id = :session_id and g.up_to is not null
)
select run_id, is_trimmed, size > 0 as had_events from shortened;

-- name: probe
-- Write one row, to check that the database accepts durable writes.
insert into probes (probed_at) values (clock_timestamp())
on conflict (only_row) do update set probed_at = excluded.probed_at;
