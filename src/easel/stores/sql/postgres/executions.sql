-- name: list_executions_by_status
-- List the executions of a canvas that have one of these statuses, newest first. Each status is read
-- separately, in the order of its index. CV-48
select e.*
  from (select distinct unnest(:statuses::text[]) as wanted) s
 cross join lateral (
       select
         -- include: execution_columns
              , resolved::text as resolved, answer::text as answer
         from executions
        where account_id = :account_id and canvas_id = :canvas_id and status = wanted
          and event_id < coalesce(:before::text, 'evu')
          and exists (select 1 from canvases
                       where account_id = :account_id and canvas_id = :canvas_id and deleted_at is null)
        order by event_id desc limit :limit) e
 order by e.event_id desc limit :limit;

-- name: renew_executions
-- Extend the claims of these executions. Returns the executions that this owner still has; a missing one has
-- ended or has another owner now. One that another transaction has locked is skipped, so that it does not
-- delay the others; the next renewal extends it.
with held as (
  select account_id, event_id from executions
   where owner_id = :owner_id and status = 'running' and event_id = any(:event_ids::text[])
     for update skip locked
), renewed as (
  update executions a set lease_until = clock_timestamp() + make_interval(secs => :seconds)
    from held where a.account_id = held.account_id and a.event_id = held.event_id
)
select event_id from executions
 where
   -- include: canvas_is_live
   and owner_id = :owner_id and status = 'running' and event_id = any(:event_ids);
