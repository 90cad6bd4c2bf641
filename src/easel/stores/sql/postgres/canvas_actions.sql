-- define: execution_columns
-- The columns of an execution, without its resolved call and its answer, which can be large.
user_id, canvas_id, event_id, action_id, request_id, request_digest, status, actor::text as actor, tool,
owner_id, confirmed_by, revision, created_at, started_at, ended_at,
extract(epoch from clock_timestamp() - created_at)::float8 as age_seconds;

-- name: get_execution
-- Return one execution of this user.
select
  -- include: execution_columns
       , resolved::text as resolved, answer::text as answer
  from canvas_actions where user_id = :user_id and event_id = :event_id;

-- name: execution_by_request
-- Return the execution that was started for this request id. CV-36
select
  -- include: execution_columns
       , resolved::text as resolved, answer::text as answer
  from canvas_actions where user_id = :user_id and canvas_id = :canvas_id and request_id = :request_id;

-- name: list_executions
-- List the executions of a canvas, newest first. Ids start with `evt_`, so that `evu` is after all. CV-48
select
  -- include: execution_columns
       , resolved::text as resolved, answer::text as answer
  from canvas_actions
 where user_id = :user_id and canvas_id = :canvas_id and event_id < coalesce(:before::text, 'evu')
 order by event_id desc limit :limit;

-- name: list_executions_by_status
-- List the executions of a canvas that have one of these statuses, newest first. Each status is read
-- separately, in the order of its index. CV-48
select e.*
  from (select distinct unnest(:statuses::text[]) as wanted) s
 cross join lateral (
       select
         -- include: execution_columns
              , resolved::text as resolved, answer::text as answer
         from canvas_actions
        where user_id = :user_id and canvas_id = :canvas_id and status = wanted
          and event_id < coalesce(:before::text, 'evu')
        order by event_id desc limit :limit) e
 order by e.event_id desc limit :limit;

-- name: renew_executions
-- Extend the claims of these executions. Returns the renewed ones; a missing one has ended or has another
-- owner now.
update canvas_actions set lease_until = clock_timestamp() + make_interval(secs => :seconds)
 where owner_id = :owner_id and status = 'running' and event_id = any(:event_ids::text[])
returning event_id;

-- name: orphaned_executions
-- List running executions whose claim has expired or belongs to one of `owner_ids`, and executions whose
-- confirmation was not answered in time.
select * from (
  select
    -- include: execution_columns
         , null as resolved, null as answer
    from canvas_actions
   where status = 'running' and (lease_until <= clock_timestamp() or owner_id = any(:owner_ids::text[]))
   order by lease_until limit :limit) as dead
union all
select * from (
  select
    -- include: execution_columns
         , null as resolved, null as answer
    from canvas_actions
   where status = 'asked' and created_at <= clock_timestamp() - make_interval(secs => :asked_seconds)
   order by created_at limit :limit) as unanswered;

-- name: adopt_execution
-- Claim an orphaned execution that has started a run, and return that run. The idempotency key of the run is
-- the id of the execution.
update canvas_actions a
   set owner_id = :owner_id, lease_until = clock_timestamp() + make_interval(secs => :seconds)
  from runs r
 where a.user_id = :user_id and a.event_id = :event_id and a.status = 'running'
   and (a.lease_until <= clock_timestamp() or a.owner_id = any(:owner_ids::text[]))
   and r.user_id = a.user_id and r.idempotency_key = a.event_id
returning r.run_id, extract(epoch from clock_timestamp() - a.started_at)::float8 as seconds;

-- name: other_active_owners
-- List the other instances that own running executions.
select distinct owner_id from canvas_actions where status = 'running' and owner_id <> :owner_id;

-- name: prune_executions
-- Delete up to 500 executions that ended long ago. Rows that another transaction has locked are skipped.
delete from canvas_actions
 where ctid = any(array(select ctid from canvas_actions
                         where ended_at < statement_timestamp() - make_interval(secs => :seconds)
                         order by ended_at limit 500
                           for update skip locked))
returning event_id;

-- name: claim_refreshes
-- Claim refresh jobs that are due. The canvas of a job must have a valid view, unless `unwatched` is set and
-- the job is not `only_watched`. Jobs with a valid claim are skipped, and so are jobs that the calling
-- process still runs although their claim has expired. Rows that another instance has locked are skipped.
-- CV-19, X9
with due as (
  select user_id, canvas_id, refresh_id from canvas_refreshes r
   where next_at <= statement_timestamp() and (lease_until is null or lease_until <= clock_timestamp())
     and ((:unwatched::boolean and not only_watched) or exists (
           select 1 from canvas_views v
            where v.user_id = r.user_id and v.canvas_id = r.canvas_id and v.expires_at > clock_timestamp()))
     and (user_id, canvas_id, refresh_id) not in (
           select * from unnest(:user_ids::text[], :canvas_ids::text[], :refresh_ids::text[]))
   order by next_at limit :capacity
     for update skip locked
)
update canvas_refreshes r
   set owner_id = :owner_id, lease_until = clock_timestamp() + make_interval(secs => :seconds)
  from due
 where r.user_id = due.user_id and r.canvas_id = due.canvas_id and r.refresh_id = due.refresh_id
returning r.user_id, r.canvas_id, r.refresh_id, r.action_id, r.every_ms, r.failures;

-- name: next_refresh
-- Return the seconds until the next unclaimed refresh job is due, null if there is none. The canvas of a job
-- must have a valid view, unless `unwatched` is set and the job is not `only_watched`.
select extract(epoch from min(next_at) - clock_timestamp())::float8 as seconds
  from canvas_refreshes r
 where (lease_until is null or lease_until <= clock_timestamp())
   and ((:unwatched::boolean and not only_watched) or exists (
         select 1 from canvas_views v
          where v.user_id = r.user_id and v.canvas_id = r.canvas_id and v.expires_at > clock_timestamp()));

-- name: renew_refreshes
-- Extend the claims of these refresh jobs. A claim that has expired is extended too, unless another instance
-- has claimed the job.
update canvas_refreshes set lease_until = clock_timestamp() + make_interval(secs => :seconds)
 where owner_id = :owner_id
   and (user_id, canvas_id, refresh_id) in (
         select * from unnest(:user_ids::text[], :canvas_ids::text[], :refresh_ids::text[]));

-- name: finish_refresh
-- Release the claim of a refresh job. Stores when the job is due again, its failure count and its error.
update canvas_refreshes
   set owner_id = null, lease_until = null, failures = :failures, error = :error::text,
       next_at = clock_timestamp() + make_interval(secs => :delay), put_off_at = clock_timestamp()
 where user_id = :user_id and canvas_id = :canvas_id and refresh_id = :refresh_id and owner_id = :owner_id;
