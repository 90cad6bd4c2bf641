-- define: canvas_is_live
-- Whether the canvas of the execution is not deleted. A scalar subquery, which always uses the primary key.
(select c.deleted_at is null from canvases c
  where c.account_id = canvas_actions.account_id and c.canvas_id = canvas_actions.canvas_id);

-- define: execution_columns
-- The columns of an execution, without its resolved call and its answer, which can be large.
account_id, canvas_id, event_id, action_id, request_id, request_digest, status, actor, tool,
owner_id, confirmed_by, revision, created_at, started_at, ended_at,
(:now - created_at) / 1e6 as age_seconds;

-- name: get_execution
-- Return one execution of this account.
select
  -- include: execution_columns
       , resolved, answer
  from canvas_actions
 where
   -- include: canvas_is_live
   and account_id = :account_id and event_id = :event_id;

-- name: execution_by_request
-- Return the execution that was started for this request id. CV-36
select
  -- include: execution_columns
       , resolved, answer
  from canvas_actions
 where
   -- include: canvas_is_live
   and account_id = :account_id and canvas_id = :canvas_id and request_id = :request_id;

-- name: list_executions
-- List the executions of a canvas, newest first. Ids start with `evt_`, so that `evu` is after all. CV-48
select
  -- include: execution_columns
       , resolved, answer
  from canvas_actions indexed by canvas_actions_listing_idx
 where account_id = :account_id and canvas_id = :canvas_id and event_id < coalesce(:before, 'evu')
   and exists (select 1 from canvases
                where account_id = :account_id and canvas_id = :canvas_id and deleted_at is null)
 order by event_id desc limit :limit;

-- name: list_executions_by_status
-- List the executions of a canvas that have one of these statuses, newest first. Each status is read
-- separately, in the order of its index, and at most to the end of the page. CV-48
select
  -- include: execution_columns
       , resolved, answer
  from (select distinct value as wanted from json_each(:statuses))
 cross join canvas_actions indexed by canvas_actions_status_idx
 where account_id = :account_id and canvas_id = :canvas_id and status = wanted
   and event_id < coalesce(:before, 'evu')
   and event_id >= coalesce((select event_id from canvas_actions indexed by canvas_actions_status_idx
                              where account_id = :account_id and canvas_id = :canvas_id and status = wanted
                                and event_id < coalesce(:before, 'evu')
                              order by event_id desc limit 1 offset :limit - 1), '')
   and exists (select 1 from canvases
                where account_id = :account_id and canvas_id = :canvas_id and deleted_at is null)
 order by event_id desc limit :limit;

-- name: renew_executions
-- Extend the claims of these executions. Returns the renewed ones; a missing one has ended or has another
-- owner now.
update canvas_actions set lease_until = :until
 where owner_id = :owner_id and status = 'running' and event_id in (select value from json_each(:event_ids))
   and
   -- include: canvas_is_live
returning event_id;

-- name: orphaned_executions
-- List running executions whose claim has expired or belongs to one of `owner_ids`, and executions whose
-- confirmation was not answered in time.
select * from (
  select
    -- include: execution_columns
         , null as resolved, null as answer
    from canvas_actions
   where status = 'running' and (lease_until <= :now or owner_id in (select value from json_each(:owner_ids)))
     and
     -- include: canvas_is_live
   order by lease_until limit :limit) as dead
union all
select * from (
  select
    -- include: execution_columns
         , null as resolved, null as answer
    from canvas_actions where status = 'asked' and created_at <= :asked_before
     and
     -- include: canvas_is_live
   order by created_at limit :limit) as unanswered;

-- name: adopt_execution
-- Claim an orphaned execution that has started a run, and return that run. The idempotency key of the run is
-- the id of the execution.
update canvas_actions
   set owner_id = :owner_id, lease_until = :until
 where account_id = :account_id and event_id = :event_id and status = 'running'
   and (lease_until <= :now or owner_id in (select value from json_each(:owner_ids)))
   and exists (select 1 from runs r
                where r.account_id = canvas_actions.account_id and r.idempotency_key = canvas_actions.event_id
                  and (select s.deleted_at is null from sessions s
                        where s.account_id = r.account_id and s.session_id = r.session_id))
   and
   -- include: canvas_is_live
returning (select run_id from runs r
            where r.account_id = canvas_actions.account_id
              and r.idempotency_key = canvas_actions.event_id) as run_id,
          (:now - started_at) / 1e6 as seconds;

-- name: other_active_owners
-- List the other instances that own running executions.
select distinct owner_id from canvas_actions where status = 'running' and owner_id <> :owner_id;

-- name: prune_executions
-- Delete up to 500 executions that ended long ago.
delete from canvas_actions
 where (account_id, event_id) in (select account_id, event_id from canvas_actions
                                where ended_at < :before order by ended_at limit 500)
returning event_id;

-- define: refresh_account_is_active
-- Whether the account of the refresh job is not disabled.
(select a.disabled_at is null from accounts a where a.account_id = r.account_id);

-- name: claim_refreshes
-- Claim refresh jobs that are due. The canvas of a job must have a valid view, unless `unwatched` is set and
-- the job is not `only_watched`. Jobs with a valid claim are skipped, and so are jobs that the calling
-- process still runs although their claim has expired, and jobs of disabled accounts. CV-19, X9
update canvas_refreshes
   set owner_id = :owner_id, lease_until = :until
 where (account_id, canvas_id, refresh_id) in (
         select account_id, canvas_id, refresh_id from canvas_refreshes r
          where next_at <= :now and (lease_until is null or lease_until <= :now)
            and ((:unwatched and not only_watched) or exists (
                  select 1 from canvas_views v
                   where v.account_id = r.account_id and v.canvas_id = r.canvas_id and v.expires_at > :now))
            and (account_id, canvas_id, refresh_id) not in (
                  select json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]')
                    from json_each(:running))
            and
            -- include: refresh_account_is_active
          order by next_at limit :capacity)
returning account_id, canvas_id, refresh_id, action_id, every_ms, failures;

-- name: next_refresh
-- Return the seconds until the next unclaimed refresh job is due, null if there is none. The canvas of a job
-- must have a valid view, unless `unwatched` is set and the job is not `only_watched`.
select (min(next_at) - :now) / 1e6 as seconds
  from canvas_refreshes r
 where (lease_until is null or lease_until <= :now)
   and
   -- include: refresh_account_is_active
   and ((:unwatched and not only_watched) or exists (
         select 1 from canvas_views v
          where v.account_id = r.account_id and v.canvas_id = r.canvas_id and v.expires_at > :now));

-- name: renew_refreshes
-- Extend the claims of these refresh jobs. A claim that has expired is extended too, unless another instance
-- has claimed the job.
update canvas_refreshes set lease_until = :until
 where owner_id = :owner_id
   and (account_id, canvas_id, refresh_id) in (
         select json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]')
           from json_each(:jobs));

-- name: finish_refresh
-- Release the claim of a refresh job. Stores when the job is due again, its failure count and its error.
update canvas_refreshes
   set owner_id = null, lease_until = null, failures = :failures, error = :error, next_at = :next_at,
       put_off_at = :now
 where account_id = :account_id and canvas_id = :canvas_id and refresh_id = :refresh_id and owner_id = :owner_id;
