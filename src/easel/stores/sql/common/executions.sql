-- define: canvas_is_live
-- Whether the canvas of the execution is not deleted. A scalar subquery, which always uses the primary key.
(select c.deleted_at is null from canvases c
  where c.account_id = executions.account_id and c.canvas_id = executions.canvas_id);

-- define: execution_columns
-- The columns of an execution, without its resolved call and its answer, which can be large.
account_id, canvas_id, event_id, action_id, request_id, request_digest, status, actor::text as actor, tool,
owner_id, confirmed_by, revision, created_at, started_at, ended_at,
extract(epoch from answer_until - clock_timestamp())::float8 as answer_seconds;

-- name: get_execution
-- Return one execution of this account.
select
  -- include: execution_columns
       , resolved::text as resolved, answer::text as answer
  from executions
 where
   -- include: canvas_is_live
   and account_id = :account_id and event_id = :event_id;

-- name: execution_by_request
-- Return the execution that was started for this request id. CV-36
select
  -- include: execution_columns
       , resolved::text as resolved, answer::text as answer
  from executions
 where
   -- include: canvas_is_live
   and account_id = :account_id and canvas_id = :canvas_id and request_id = :request_id;

-- name: list_executions
-- List the executions of a canvas, newest first. Ids start with `evt_`, so that `evu` is after all. CV-48
select
  -- include: execution_columns
       , resolved::text as resolved, answer::text as answer
  from executions
 where account_id = :account_id and canvas_id = :canvas_id and event_id < coalesce(:before::text, 'evu')
   and exists (select 1 from canvases
                where account_id = :account_id and canvas_id = :canvas_id and deleted_at is null)
 order by event_id desc limit :limit;

-- name: orphaned_executions
-- List running executions whose claim has expired or belongs to one of `owner_ids`, and executions whose
-- confirmation was not answered in time.
select * from (
  select
    -- include: execution_columns
         , null as resolved, null as answer
    from executions
   where status = 'running' and (lease_until <= clock_timestamp() or owner_id = any(:owner_ids::text[]))
     and
     -- include: canvas_is_live
   order by lease_until limit :limit) as dead
union all
select * from (
  select
    -- include: execution_columns
         , null as resolved, null as answer
    from executions
   where status = 'asked' and answer_until <= clock_timestamp()
     and
     -- include: canvas_is_live
   order by answer_until limit :limit) as unanswered;

-- name: adopt_execution
-- Claim an orphaned execution that has started a run, and return that run. The idempotency key of the run is
-- the id of the execution.
update executions
   set owner_id = :owner_id, lease_until = clock_timestamp() + make_interval(secs => :seconds)
 where account_id = :account_id and event_id = :event_id and status = 'running'
   and (lease_until <= clock_timestamp() or owner_id = any(:owner_ids::text[]))
   and exists (select 1 from runs r
                where r.account_id = executions.account_id and r.idempotency_key = executions.event_id
                  and (select s.deleted_at is null from sessions s
                        where s.account_id = r.account_id and s.session_id = r.session_id))
   and
   -- include: canvas_is_live
returning (select run_id from runs r
            where r.account_id = executions.account_id
              and r.idempotency_key = executions.event_id) as run_id,
          extract(epoch from clock_timestamp() - started_at)::float8 as seconds;

-- name: other_approver
-- Return whether another member of a team may approve what this person asked for. RS-77
select exists (select 1 from team_members m
                where m.account_id = :account_id and m.user_id <> :user_id and m.role <> 'viewer'
                  and (select a.disabled_at is null from accounts a where a.account_id = m.user_id)) as found;

-- name: other_active_owners
-- List the other instances that own running executions.
select distinct owner_id from executions where status = 'running' and owner_id <> :owner_id;

-- name: prune_executions
-- Delete up to 500 executions that ended long ago. Rows that another transaction has locked are skipped.
delete from executions
 where ctid = any(array(select ctid from executions
                         where ended_at < statement_timestamp() - make_interval(secs => :seconds)
                         order by ended_at limit 500
                           for update skip locked))
returning event_id;

-- define: job_is_active
-- Whether the job runs now: its account is not disabled, and its canvas has a valid view, or it needs none.
(select a.disabled_at is null from accounts a where a.account_id = r.account_id)
and ((:unwatched::boolean and not only_watched) or exists (
   select 1 from canvas_views v
    where v.account_id = r.account_id and v.canvas_id = r.canvas_id and v.expires_at > clock_timestamp()));

-- name: claim_refreshes
-- Claim refresh jobs that are due. The canvas of a job must have a valid view, unless `unwatched` is set and
-- the job is not `only_watched`. Jobs with a valid claim are skipped, and so are jobs that the calling
-- process still runs although their claim has expired. Rows that another instance has locked are skipped.
-- CV-19, X9
update canvas_refreshes
   set owner_id = :owner_id, lease_until = clock_timestamp() + make_interval(secs => :seconds)
 where ctid = any(array(select ctid from canvas_refreshes r
                         where next_at <= statement_timestamp()
                           and (lease_until is null or lease_until <= clock_timestamp())
                           and
                           -- include: job_is_active
                           and (account_id, canvas_id, refresh_id) not in (
                                 select job->>0, job->>1, job->>2
                                   from json_array_elements(:running::text::json) as job)
                         order by next_at limit :capacity
                           for update skip locked))
returning account_id, canvas_id, refresh_id, action_id, every_ms, failures;

-- name: next_refresh
-- Return the seconds until the next unclaimed refresh job is due, null if there is none. The canvas of a job
-- must have a valid view, unless `unwatched` is set and the job is not `only_watched`.
select extract(epoch from min(next_at) - clock_timestamp())::float8 as seconds
  from canvas_refreshes r
 where (lease_until is null or lease_until <= clock_timestamp())
   and
   -- include: job_is_active
;

-- name: renew_refreshes
-- Extend the claims of these refresh jobs. A claim that has expired is extended too, unless another instance
-- has claimed the job. Rows that another transaction has locked are skipped: the next renewal extends them.
update canvas_refreshes set lease_until = clock_timestamp() + make_interval(secs => :seconds)
 where ctid = any(array(select ctid from canvas_refreshes
                         where owner_id = :owner_id
                           and (account_id, canvas_id, refresh_id) in (
                                 select job->>0, job->>1, job->>2
                                   from json_array_elements(:jobs::text::json) as job)
                           for update skip locked));

-- name: finish_refresh
-- Release the claim of a refresh job. Stores when the job is due again, its failure count and its error.
update canvas_refreshes
   set owner_id = null, lease_until = null, failures = :failures, error = :error::text,
       next_at = clock_timestamp() + make_interval(secs => :delay)
 where account_id = :account_id and canvas_id = :canvas_id and refresh_id = :refresh_id
   and owner_id = :owner_id;
