-- define: execution_columns
-- The columns of an execution without its call and its answer, which can be large.
user_id, canvas_id, event_id, action_id, request_id, request_digest, status, actor::text as actor, tool,
owner_id, confirmed_by, revision, created_at, started_at, ended_at,
extract(epoch from clock_timestamp() - created_at)::float8 as age_seconds;

-- name: get_execution
-- One execution of this user's, and how long ago it was asked for.
select
  -- include: execution_columns
       , resolved::text as resolved, answer::text as answer
  from canvas_actions where user_id = :user_id and event_id = :event_id;

-- name: execution_of_request
-- What a request has led to.
select
  -- include: execution_columns
       , resolved::text as resolved, answer::text as answer
  from canvas_actions where user_id = :user_id and canvas_id = :canvas_id and request_id = :request_id;

-- name: list_executions
-- The records of a canvas's actions, newest first. CV-48
select
  -- include: execution_columns
       , resolved::text as resolved, answer::text as answer
  from canvas_actions
 where user_id = :user_id and canvas_id = :canvas_id and (:before::text is null or event_id < :before::text)
   and (cardinality(:statuses::text[]) = 0 or status = any(:statuses))
 order by event_id desc limit :limit;

-- name: renew_executions
-- This instance is alive, and so is what it runs: all of that is named. What is not given back has ended elsewhere.
update canvas_actions set lease_until = clock_timestamp() + make_interval(secs => :seconds)
 where owner_id = :owner_id and status = 'running' and event_id = any(:event_ids::text[])
returning event_id;

-- name: lost_executions
-- What nobody runs any more: its instance has not been heard of for too long. And what nobody has agreed to in time.
select * from (
  select
    -- include: execution_columns
         , null as resolved, null as answer
    from canvas_actions where status = 'running' and (lease_until <= clock_timestamp() or owner_id = any(:owner_ids::text[]))
   order by lease_until limit :limit) as dead
union all
select * from (
  select
    -- include: execution_columns
         , null as resolved, null as answer
    from canvas_actions where status = 'asked' and created_at <= clock_timestamp() - make_interval(secs => :asked_seconds)
   order by created_at limit :limit) as unanswered;

-- name: take_up_execution
-- What another instance has left, where a run was started for it: from now on this one waits for that run. The execution's name is the run's key.
update canvas_actions a
   set owner_id = :owner_id, lease_until = clock_timestamp() + make_interval(secs => :seconds)
  from runs r
 where a.user_id = :user_id and a.event_id = :event_id and a.status = 'running'
   and (a.lease_until <= clock_timestamp() or a.owner_id = any(:owner_ids::text[]))
   and r.user_id = a.user_id and r.idempotency_key = a.event_id
returning r.run_id, extract(epoch from clock_timestamp() - a.started_at)::float8 as seconds;

-- name: other_active_owners
-- Who else is said to run something.
select distinct owner_id from canvas_actions where status = 'running' and owner_id <> :owner_id;

-- name: prune_executions
-- Records that ended long ago, some at a time.
delete from canvas_actions
 where (user_id, event_id) in (select user_id, event_id from canvas_actions
                                where ended_at < clock_timestamp() - make_interval(secs => :seconds) limit 500)
returning event_id;

-- name: claim_refreshes
-- Take the jobs that are due, each by its own row lock, and of canvases that somebody looks at where that is wanted. What runs is left
-- alone: it is held, here or elsewhere, or it is at work in the very process that asks, however long ago its hold ran out. CV-19, X9
with due as (
  select user_id, canvas_id, refresh_id from canvas_refreshes r
   where next_at <= clock_timestamp() and (lease_until is null or lease_until <= clock_timestamp())
     and ((:unwatched::boolean and not only_watched) or exists (
           select 1 from canvas_views v where v.user_id = r.user_id and v.canvas_id = r.canvas_id and v.expires_at > clock_timestamp()))
     and (user_id, canvas_id, refresh_id) not in (select * from unnest(:user_ids::text[], :canvas_ids::text[], :refresh_ids::text[]))
   order by next_at limit :capacity
     for update skip locked
)
update canvas_refreshes r
   set owner_id = :owner_id, lease_until = clock_timestamp() + make_interval(secs => :seconds)
  from due
 where r.user_id = due.user_id and r.canvas_id = due.canvas_id and r.refresh_id = due.refresh_id
returning r.user_id, r.canvas_id, r.refresh_id, r.action_id, r.every_ms, r.failures;

-- name: next_refresh
-- In how many seconds the next job is due, among those that nobody runs and that may run as things are; nothing where there is none.
select extract(epoch from min(next_at) - clock_timestamp())::float8 as seconds
  from canvas_refreshes r
 where (lease_until is null or lease_until <= clock_timestamp())
   and ((:unwatched::boolean and not only_watched) or exists (
         select 1 from canvas_views v where v.user_id = r.user_id and v.canvas_id = r.canvas_id and v.expires_at > clock_timestamp()));

-- name: renew_refreshes
-- This instance is alive, and so are the jobs that it runs: all of them are named. A hold that ran out is renewed if nobody took the job.
update canvas_refreshes set lease_until = clock_timestamp() + make_interval(secs => :seconds)
 where owner_id = :owner_id
   and (user_id, canvas_id, refresh_id) in (select * from unnest(:user_ids::text[], :canvas_ids::text[], :refresh_ids::text[]));

-- name: finish_refresh
-- A job has run; when it is due again, and why it failed if it did.
update canvas_refreshes
   set owner_id = null, lease_until = null, failures = :failures, error = :error::text,
       next_at = clock_timestamp() + make_interval(secs => :delay), put_off_at = clock_timestamp()
 where user_id = :user_id and canvas_id = :canvas_id and refresh_id = :refresh_id and owner_id = :owner_id;
