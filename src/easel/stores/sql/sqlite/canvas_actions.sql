-- name: get_execution
-- One execution of this user's, and how long ago it was asked for.
select user_id, canvas_id, event_id, action_id, request_id, status, actor, tool, resolved, answer,
       owner_id, confirmed_by, revision, created_at, started_at, ended_at,
       (:now - created_at) / 1e6 as age_seconds
  from canvas_actions where user_id = :user_id and event_id = :event_id;

-- name: execution_of_request
-- What a request has led to.
select user_id, canvas_id, event_id, action_id, request_id, status, actor, tool, resolved, answer,
       owner_id, confirmed_by, revision, created_at, started_at, ended_at,
       (:now - created_at) / 1e6 as age_seconds
  from canvas_actions where user_id = :user_id and canvas_id = :canvas_id and request_id = :request_id;

-- name: list_executions
-- The records of a canvas's actions, newest first. CV-48
select user_id, canvas_id, event_id, action_id, request_id, status, actor, tool, resolved, answer,
       owner_id, confirmed_by, revision, created_at, started_at, ended_at,
       (:now - created_at) / 1e6 as age_seconds
  from canvas_actions
 where user_id = :user_id and canvas_id = :canvas_id and (:before is null or event_id < :before)
   and (:statuses = '[]' or status in (select value from json_each(:statuses)))
 order by event_id desc limit :limit;

-- name: renew_executions
-- This instance is alive, and so is what it runs: all of that is named.
update canvas_actions set lease_until = :until
 where owner_id = :owner_id and status = 'running' and event_id in (select value from json_each(:event_ids));

-- name: lost_executions
-- What nobody runs any more: its instance has not been heard of for too long.
select user_id, canvas_id, event_id, action_id, request_id, status, actor, tool, null as resolved, null as answer,
       owner_id, confirmed_by, revision, created_at, started_at, ended_at,
       (:now - created_at) / 1e6 as age_seconds
  from canvas_actions where status = 'running' and (lease_until <= :now or owner_id in (select value from json_each(:owner_ids)))
 order by lease_until limit :limit;

-- name: others_at_work
-- Who else is said to run something.
select distinct owner_id from canvas_actions where status = 'running' and owner_id <> :owner_id;

-- name: prune_executions
-- Records that ended long ago, some at a time.
delete from canvas_actions
 where (user_id, event_id) in (select user_id, event_id from canvas_actions
                                where ended_at < :before limit 500);

-- name: claim_refreshes
-- Take the jobs that are due; those that still run are left alone. CV-19, X9
update canvas_refreshes
   set owner_id = :owner_id, lease_until = :until
 where (user_id, canvas_id, refresh_id) in (
         select user_id, canvas_id, refresh_id from canvas_refreshes
          where next_at <= :now and (lease_until is null or lease_until <= :now)
          order by next_at limit :room)
returning user_id, canvas_id, refresh_id, action_id, every_ms, failures;

-- name: next_refresh
-- In how many seconds the next job is due; nothing where there is none.
select (min(next_at) - :now) / 1e6 as seconds from canvas_refreshes;

-- name: renew_refreshes
-- The jobs that this instance runs are still at it.
update canvas_refreshes set lease_until = :until
 where owner_id = :owner_id and lease_until > :now;

-- name: settle_refresh
-- A job has run, or was put off; when it is due again.
update canvas_refreshes
   set owner_id = null, lease_until = null, failures = :failures, next_at = :next_at
 where user_id = :user_id and canvas_id = :canvas_id and refresh_id = :refresh_id and owner_id = :owner_id;
