-- name: list_executions_by_status
-- List the executions of a canvas that have one of these statuses, newest first. Each status is read
-- separately, in the order of its index, and at most to the end of the page. CV-48
select
  -- include: execution_columns
       , resolved, answer
  from (select distinct value as wanted from json_each(:statuses))
 cross join executions indexed by executions_status_idx
 where account_id = :account_id and canvas_id = :canvas_id and status = wanted
   and event_id < coalesce(:before, 'evu')
   and event_id >= coalesce((select event_id from executions indexed by executions_status_idx
                              where account_id = :account_id and canvas_id = :canvas_id and status = wanted
                                and event_id < coalesce(:before, 'evu')
                              order by event_id desc limit 1 offset :limit - 1), '')
   and exists (select 1 from canvases
                where account_id = :account_id and canvas_id = :canvas_id and deleted_at is null)
 order by event_id desc limit :limit;

-- name: renew_executions
-- Extend the claims of these executions. Returns the renewed ones; a missing one has ended or has another
-- owner now.
update executions set lease_until = :now + cast(:seconds * 1000000 as integer)
 where owner_id = :owner_id and status = 'running' and event_id in (select value from json_each(:event_ids))
   and
   -- include: canvas_is_live
returning event_id;
