-- define: execution_columns
-- The columns of an execution without its call and its answer, which can be large.
user_id, canvas_id, event_id, action_id, request_id, request_digest, status, actor, tool,
owner_id, confirmed_by, revision, created_at, started_at, ended_at,
(:now - created_at) / 1e6 as age_seconds;

-- name: get_execution
-- One execution of this user's, and how long ago it was asked for.
select
  -- include: execution_columns
       , resolved, answer
  from canvas_actions where user_id = :user_id and event_id = :event_id;

-- name: execution_of_request
-- What a request has led to.
select
  -- include: execution_columns
       , resolved, answer
  from canvas_actions where user_id = :user_id and canvas_id = :canvas_id and request_id = :request_id;

-- name: list_executions
-- The records of a canvas's actions, newest first. CV-48
select
  -- include: execution_columns
       , resolved, answer
  from canvas_actions
 where user_id = :user_id and canvas_id = :canvas_id and (:before is null or event_id < :before)
   and (:statuses = '[]' or status in (select value from json_each(:statuses)))
 order by event_id desc limit :limit;

-- name: renew_executions
-- This instance is alive, and so is what it runs: all of that is named. What is not given back has ended elsewhere.
update canvas_actions set lease_until = :until
 where owner_id = :owner_id and status = 'running' and event_id in (select value from json_each(:event_ids))
returning event_id;

-- name: lost_executions
-- What nobody runs any more: its instance has not been heard of for too long. And what nobody has agreed to in time.
select * from (
  select
    -- include: execution_columns
         , null as resolved, null as answer
    from canvas_actions where status = 'running' and (lease_until <= :now or owner_id in (select value from json_each(:owner_ids)))
   order by lease_until limit :limit) as dead
union all
select * from (
  select
    -- include: execution_columns
         , null as resolved, null as answer
    from canvas_actions where status = 'asked' and created_at <= :asked_before
   order by created_at limit :limit) as unanswered;

-- name: take_up_execution
-- What another instance has left, where a run was started for it: from now on this one waits for that run. The execution's name is the run's key.
update canvas_actions
   set owner_id = :owner_id, lease_until = :until
 where user_id = :user_id and event_id = :event_id and status = 'running'
   and (lease_until <= :now or owner_id in (select value from json_each(:owner_ids)))
   and exists (select 1 from runs r where r.user_id = canvas_actions.user_id and r.idempotency_key = canvas_actions.event_id)
returning (select run_id from runs r where r.user_id = canvas_actions.user_id and r.idempotency_key = canvas_actions.event_id) as run_id,
          (:now - started_at) / 1e6 as seconds;

-- name: other_active_owners
-- Who else is said to run something.
select distinct owner_id from canvas_actions where status = 'running' and owner_id <> :owner_id;

-- name: prune_executions
-- Records that ended long ago, some at a time.
delete from canvas_actions
 where (user_id, event_id) in (select user_id, event_id from canvas_actions
                                where ended_at < :before limit 500)
returning event_id;

-- name: claim_refreshes
-- Take the jobs that are due, and of canvases that somebody looks at where that is wanted. What runs is left alone: it is held, or it is
-- at work in the very process that asks, however long ago its hold ran out. CV-19, X9
update canvas_refreshes
   set owner_id = :owner_id, lease_until = :until
 where (user_id, canvas_id, refresh_id) in (
         select user_id, canvas_id, refresh_id from canvas_refreshes r
          where next_at <= :now and (lease_until is null or lease_until <= :now)
            and ((:unwatched and not only_watched) or exists (
                  select 1 from canvas_views v where v.user_id = r.user_id and v.canvas_id = r.canvas_id and v.expires_at > :now))
            and (user_id, canvas_id, refresh_id) not in (
                  select json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]') from json_each(:running))
          order by next_at limit :capacity)
returning user_id, canvas_id, refresh_id, action_id, every_ms, failures;

-- name: next_refresh
-- In how many seconds the next job is due, among those that nobody runs and that may run as things are; nothing where there is none.
select (min(next_at) - :now) / 1e6 as seconds
  from canvas_refreshes r
 where (lease_until is null or lease_until <= :now)
   and ((:unwatched and not only_watched) or exists (
         select 1 from canvas_views v where v.user_id = r.user_id and v.canvas_id = r.canvas_id and v.expires_at > :now));

-- name: renew_refreshes
-- This instance is alive, and so are the jobs that it runs: all of them are named. A hold that ran out is renewed if nobody took the job.
update canvas_refreshes set lease_until = :until
 where owner_id = :owner_id
   and (user_id, canvas_id, refresh_id) in (
         select json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]') from json_each(:jobs));

-- name: finish_refresh
-- A job has run; when it is due again, and why it failed if it did.
update canvas_refreshes
   set owner_id = null, lease_until = null, failures = :failures, error = :error, next_at = :next_at, put_off_at = :now
 where user_id = :user_id and canvas_id = :canvas_id and refresh_id = :refresh_id and owner_id = :owner_id;
