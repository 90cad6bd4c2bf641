-- name: list_canvases
-- Return a page of this account's canvases in order of id. CV-33
select
  -- include: summary_columns
  from canvases
 where account_id = :account_id and canvas_id collate "C" > :after::text
   and deleted_at is null
 order by canvas_id collate "C" limit :limit;

-- name: list_agent_canvases
-- Return a page of this account's canvases of one agent in order of id. CV-33
select
  -- include: summary_columns
  from canvases
 where account_id = :account_id and agent_id = :agent_id and canvas_id collate "C" > :after::text
   and deleted_at is null
 order by canvas_id collate "C" limit :limit;

-- name: find_canvas_at
-- Return the id of the canvas at an offset of the list. RS-67
select canvas_id from canvases
 where account_id = :account_id and deleted_at is null
 order by canvas_id collate "C" limit 1 offset :offset;

-- name: find_agent_canvas_at
-- Return the id of the canvas at an offset of the list of one agent. RS-67
select canvas_id from canvases
 where account_id = :account_id and agent_id = :agent_id and deleted_at is null
 order by canvas_id collate "C" limit 1 offset :offset;

-- name: count_canvases
-- Count this account's canvases, up to a limit. RS-67
select count(*) as found
  from (select 1 from canvases where account_id = :account_id and deleted_at is null
         order by canvas_id collate "C" limit :limit) as listed;

-- name: count_agent_canvases
-- Count this account's canvases of one agent, up to a limit. RS-67
select count(*) as found
  from (select 1 from canvases
         where account_id = :account_id and agent_id = :agent_id and deleted_at is null
         order by canvas_id collate "C" limit :limit) as listed;

-- name: get_canvas_agent
-- Return the agent that has this canvas. RS-67
select agent_id from canvases
 where account_id = :account_id and canvas_id = :canvas_id and deleted_at is null;

-- name: mark_canvas
-- Mark a canvas as deleted. From now on it and all that belongs to it are not found; its rows are purged
-- later.
update canvases set deleted_at = clock_timestamp()
 where account_id = :account_id and canvas_id = :canvas_id and deleted_at is null;

-- name: delete_all_assets
-- Delete the rows of all assets of a canvas that is deleted, so that its blobs are not kept.
delete from canvas_assets where account_id = :account_id and canvas_id = :canvas_id;

-- name: delete_all_views
-- Delete all views of a canvas that is deleted.
delete from canvas_views where account_id = :account_id and canvas_id = :canvas_id;

-- name: delete_all_refreshes
-- Delete all refresh jobs of a canvas that is deleted.
delete from canvas_refreshes where account_id = :account_id and canvas_id = :canvas_id;

-- name: count_pending_executions
-- Count the executions of a canvas that wait for a confirmation and have not expired.
select count(*) as waiting from executions
 where account_id = :account_id and canvas_id = :canvas_id and status = 'asked'
   and answer_until > clock_timestamp();

-- name: start_execution
-- Store a new execution. Stores nothing if an execution with its request id exists. CV-36
insert into executions (account_id, canvas_id, event_id, action_id, request_id, request_digest, status,
                        actor, tool, resolved, answer, revision, owner_id, log_seq,
                        created_at, started_at, ended_at, answer_until, lease_until)
values (:account_id, :canvas_id, :event_id, :action_id, :request_id, :request_digest, :status,
        :actor::text::json, :tool, :resolved::text::json, :answer::text::json,
        :revision, :owner_id, :log_seq, clock_timestamp(),
        case when :status::text <> 'asked' then clock_timestamp() end,
        case when :status::text in ('completed', 'failed', 'refused') then clock_timestamp() end,
        case when :status::text = 'asked'
             then clock_timestamp() + make_interval(secs => :answer_seconds) end,
        case when :status::text = 'running' then clock_timestamp() + make_interval(secs => :seconds) end)
on conflict do nothing
returning event_id;

-- name: advance_execution
-- Change the status of an execution, if it still has the expected status. A running execution must belong to
-- the given owner. The resolved call is deleted at the end: it may contain a secret that a person typed.
update executions
   set status = :status::text, answer = coalesce(:answer::text::json, answer), revision = :revision,
       confirmed_by = coalesce(:confirmed_by, confirmed_by),
       resolved = case when :status in ('asked', 'running') then resolved end,
       started_at = coalesce(started_at, case when :status <> 'refused' then clock_timestamp() end),
       ended_at = case when :status in ('completed', 'failed', 'refused') then clock_timestamp() end,
       lease_until = case when :status = 'running'
                          then clock_timestamp() + make_interval(secs => :seconds) end,
       owner_id = coalesce(owner_id, :owner_id)
 where account_id = :account_id and event_id = :event_id and status = :out_of
   and (:out_of <> 'running' or owner_id = :owner_id)
returning event_id;

-- name: remove_assets
-- Delete the assets at these paths.
delete from canvas_assets where account_id = :account_id and canvas_id = :canvas_id
   and path = any(:paths::text[]);

-- name: find_unknown_assets
-- Return those of these blob keys that were created long ago and belong to no asset of a canvas or a version.
select found->>0 as blob_key
  from json_array_elements(:keys::text::json) as found
 where (found->>1)::float8 < extract(epoch from now() - make_interval(secs => :seconds))::float8
   and not exists (select 1 from canvas_assets where canvas_assets.blob_key = found->>0)
   and not exists (select 1 from canvas_version_assets v
                    where v.blob_key = found->>0 and v.blob_key is not null);

-- name: add_view
-- Store a view. It expires unless its instance renews it.
insert into canvas_views (account_id, canvas_id, view_id, client_id, connection_id, user_id, expires_at)
values (:account_id, :canvas_id, :view_id, :client_id, :connection_id, :user_id,
        clock_timestamp() + make_interval(secs => :seconds));

-- name: remove_views
-- Delete these views of a canvas.
delete from canvas_views
 where account_id = :account_id and canvas_id = :canvas_id and view_id = any(:view_ids::text[]);

-- name: renew_views
-- Extend the expiry of the views of these connections. Rows that another transaction has locked are skipped:
-- the next renewal extends them.
update canvas_views set expires_at = clock_timestamp() + make_interval(secs => :seconds)
 where ctid = any(array(select ctid from canvas_views
                         where connection_id = any(:connection_ids::text[])
                           for update skip locked));

-- name: list_views
-- List the views of a connection.
select account_id, canvas_id, view_id, client_id, connection_id, user_id from canvas_views
 where connection_id = :connection_id;

-- name: list_expired_views
-- List the views that their instance did not renew in time.
select account_id, canvas_id, view_id, client_id, connection_id, user_id from canvas_views
 where expires_at <= statement_timestamp() order by expires_at limit :limit;

-- name: canvas_bounds
-- Return the first and the last position of a canvas's log.
select oldest_seq, last_seq from canvases
 where account_id = :account_id and canvas_id = :canvas_id and deleted_at is null;

-- name: canvas_heads
-- Return the last position of each of these logs. An instance polls once for all its subscribers.
select account_id, canvas_id, last_seq
  from canvases
  join json_array_elements(:canvases::text::json) as wanted
    on account_id = wanted->>0 and canvas_id = wanted->>1
 where deleted_at is null;

-- name: canvas_after
-- Return a page of a canvas's log, each event with the agent that has the canvas. RX-36, RS-67
select seq, event_type, visibility, created_at, payload::text as payload,
       (select agent_id from canvases where account_id = :account_id and canvas_id = :canvas_id) as agent_id
  from canvas_events where account_id = :account_id and canvas_id = :canvas_id and seq > :cursor
 order by seq limit :limit;

-- name: find_old_logs
-- Return the next page of canvases of all accounts, and whether the first event of each log is old.
select c.account_id, c.canvas_id,
       c.oldest_seq < c.last_seq
         and e.created_at < clock_timestamp() - make_interval(secs => :seconds) as is_old
  from (select * from canvases
         where (account_id, canvas_id) > (:account_id::text, :canvas_id::text)
         order by account_id, canvas_id limit :limit) c
  left join canvas_events e
    on e.account_id = c.account_id and e.canvas_id = c.canvas_id and e.seq = c.oldest_seq
 order by c.account_id, c.canvas_id;
