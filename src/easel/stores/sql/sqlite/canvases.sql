-- name: create_canvas
-- Create a canvas; the caller adds its first event in the same transaction. Returns no row if the canvas
-- exists. The log continues after the log of a deleted canvas of the same id.
insert into canvases (account_id, canvas_id, agent_id, title, owner_session_key, spec, state, is_accepted,
                      tool_hints, written_by, titled_by, written_at, oldest_seq, last_seq, created_at,
                      updated_at)
select :account_id, :canvas_id, :agent_id, :title, :owner_session_key, :spec, :state, :is_accepted,
       :tool_hints, :written_by, :written_by, :now, coalesce(max(last_seq), 0) + 1,
       coalesce(max(last_seq), 0) + 1, :now, :now
  from ended_canvases where account_id = :account_id and canvas_id = :canvas_id
on conflict do nothing
returning *;

-- name: get_canvas
-- Return one canvas of this account with its assets, views and failing refresh jobs, read in one statement so
-- that they are consistent. CV-46
select *,
       (select json_group_array(json_array(path, blob_key, size))
          from (select * from canvas_assets a
                 where a.account_id = c.account_id and a.canvas_id = c.canvas_id order by path)) as assets,
       (select json_group_array(json_array(view_id, client_id, connection_id, expires_at > :now))
          from (select * from canvas_views v
                 where v.account_id = c.account_id and v.canvas_id = c.canvas_id order by view_id)) as views,
       (select json_group_array(json_array(refresh_id, action_id, failures, (next_at - :now) / 1e6,
                                           json(error)))
          from (select * from canvas_refreshes r
                 where r.account_id = c.account_id and r.canvas_id = c.canvas_id and failures > 0
                 order by refresh_id)) as failing
  from canvases c where account_id = :account_id and canvas_id = :canvas_id and deleted_at is null;

-- define: summary_columns
-- The columns of a canvas in a list, without its spec and its state, which can be large.
account_id, canvas_id, agent_id, title, owner_session_key,
json_object('mode', coalesce(json_extract(spec, '$.mode'), 'html')) as spec,
'{}' as state, revision, last_seq, spec_revision, is_accepted, null as tool_hints, written_by, titled_by,
'{}' as unreviewed, created_at, updated_at;

-- name: list_canvases
-- Return a page of this account's canvases in order of id. CV-33
select
  -- include: summary_columns
  from canvases
 where account_id = :account_id and canvas_id > :after
   and deleted_at is null
 order by canvas_id limit :limit;

-- name: list_agent_canvases
-- Return a page of this account's canvases of one agent in order of id. CV-33
select
  -- include: summary_columns
  from canvases indexed by canvases_agent_listing_idx
 where account_id = :account_id and agent_id = :agent_id and canvas_id > :after
   and deleted_at is null
 order by canvas_id limit :limit;

-- name: find_canvas_at
-- Return the id of the canvas at an offset of the list. RS-67
select canvas_id from canvases
 where account_id = :account_id and deleted_at is null
 order by canvas_id limit 1 offset :offset;

-- name: find_agent_canvas_at
-- Return the id of the canvas at an offset of the list of one agent. RS-67
select canvas_id from canvases indexed by canvases_agent_listing_idx
 where account_id = :account_id and agent_id = :agent_id and deleted_at is null
 order by canvas_id limit 1 offset :offset;

-- name: count_canvases
-- Count this account's canvases, up to a limit. RS-67
select count(*) as found
  from (select 1 from canvases where account_id = :account_id and deleted_at is null
         order by canvas_id limit :limit) as listed;

-- name: count_agent_canvases
-- Count this account's canvases of one agent, up to a limit. RS-67
select count(*) as found
  from (select 1 from canvases indexed by canvases_agent_listing_idx
         where account_id = :account_id and agent_id = :agent_id and deleted_at is null
         order by canvas_id limit :limit) as listed;

-- name: get_canvas_agent
-- Return the agent that has this canvas. RS-67
select agent_id from canvases
 where account_id = :account_id and canvas_id = :canvas_id and deleted_at is null;

-- name: mark_canvas
-- Mark a canvas as deleted. From now on it and all that belongs to it are not found; its rows are purged
-- later.
update canvases set deleted_at = :now
 where account_id = :account_id and canvas_id = :canvas_id and deleted_at is null;

-- name: delete_all_assets
-- Delete the rows of all assets of a canvas that is deleted, so that its blobs are not kept.
delete from canvas_assets where account_id = :account_id and canvas_id = :canvas_id;

-- name: delete_version_assets
-- Delete rows of assets of all versions of a canvas that is deleted, and return the keys of their blobs. The
-- rest is purged later.
delete from canvas_version_assets
 where (account_id, canvas_id, version_no, path) in
       (select account_id, canvas_id, version_no, path from canvas_version_assets
         where account_id = :account_id and canvas_id = :canvas_id limit :limit)
returning blob_key;

-- name: delete_all_views
-- Delete all views of a canvas that is deleted.
delete from canvas_views where account_id = :account_id and canvas_id = :canvas_id;

-- name: delete_all_refreshes
-- Delete all refresh jobs of a canvas that is deleted.
delete from canvas_refreshes where account_id = :account_id and canvas_id = :canvas_id;

-- name: change_canvas
-- Update a canvas and take the log positions of its events, which the caller adds in the same transaction.
-- CV-15, CV-44
update canvases
   set title = coalesce(:title, title),
       owner_session_key = coalesce(:owner_session_key, owner_session_key),
       spec = coalesce(:spec, spec),
       state = coalesce(:state, state),
       spec_revision = iif(coalesce(:spec, :owner_session_key) is null and coalesce(:is_accepted, 1),
                           spec_revision, revision + :step),
       is_accepted = coalesce(:is_accepted, is_accepted),
       tool_hints = coalesce(:tool_hints, tool_hints),
       written_by = coalesce(:written_by, written_by),
       titled_by = coalesce(:titled_by, titled_by),
       unreviewed = coalesce(:unreviewed, unreviewed),
       written_at = iif(:written_by is null, written_at, :now),
       revision = revision + :step,
       last_seq = last_seq + :events,
       updated_at = iif(:step = 0, updated_at, max(:now, updated_at + 1000))
 where account_id = :account_id and canvas_id = :canvas_id
returning revision, last_seq, spec_revision, is_accepted, updated_at;

-- name: take_canvas_positions
-- Take the log positions of events, which the caller adds in the same transaction. The revision of the canvas
-- stays.
update canvases set last_seq = last_seq + :events where account_id = :account_id and canvas_id = :canvas_id
returning last_seq, revision;

-- name: count_pending_executions
-- Count the executions of a canvas that wait for a confirmation and have not expired.
select count(*) as waiting from executions
 where account_id = :account_id and canvas_id = :canvas_id and status = 'asked' and created_at > :since;

-- name: start_execution
-- Store a new execution. Stores nothing if an execution with its request id exists. CV-36
insert into executions (account_id, canvas_id, event_id, action_id, request_id, request_digest, status,
                        actor, tool, resolved, answer, revision, owner_id, log_seq,
                        created_at, started_at, ended_at, lease_until)
values (:account_id, :canvas_id, :event_id, :action_id, :request_id, :request_digest, :status, :actor, :tool,
        :resolved, :answer, :revision, :owner_id, :log_seq,
        :now, iif(:status <> 'asked', :now, null),
        iif(:status in ('completed', 'failed', 'refused'), :now, null),
        iif(:status = 'running', :until, null))
on conflict do nothing;

-- name: advance_execution
-- Change the status of an execution, if it still has the expected status. A running execution must belong to
-- the given owner. The resolved call is deleted at the end: it may contain a secret that a person typed.
update executions
   set status = :status, answer = coalesce(:answer, answer), revision = :revision,
       confirmed_by = coalesce(:confirmed_by, confirmed_by),
       resolved = iif(:status in ('asked', 'running'), resolved, null),
       started_at = coalesce(started_at, iif(:status <> 'refused', :now, null)),
       ended_at = iif(:status in ('completed', 'failed', 'refused'), :now, null),
       lease_until = iif(:status = 'running', :until, null),
       owner_id = coalesce(owner_id, :owner_id)
 where account_id = :account_id and event_id = :event_id and status = :out_of
   and (:out_of <> 'running' or owner_id = :owner_id);

-- name: delete_refreshes
-- Delete the refresh jobs that the new spec has changed or does not contain.
delete from canvas_refreshes
 where account_id = :account_id and canvas_id = :canvas_id
   and json_array(refresh_id, action_id, every_ms, only_watched) not in (select value from json_each(:kept));

-- name: add_refresh
-- Add a refresh job of the new spec. An existing job keeps its due time.
insert into canvas_refreshes (account_id, canvas_id, refresh_id, action_id, every_ms, only_watched, next_at)
values (:account_id, :canvas_id, :refresh_id, :action_id, :every_ms, :only_watched, :now + :every_ms * 1000)
on conflict do nothing;

-- name: put_asset
-- Store an asset; an existing asset at its path is replaced.
insert into canvas_assets (account_id, canvas_id, path, blob_key, size)
values (:account_id, :canvas_id, :path, :blob_key, :size)
on conflict (account_id, canvas_id, path) do update set blob_key = excluded.blob_key, size = excluded.size;

-- name: remove_asset
-- Delete the asset at this path.
delete from canvas_assets where account_id = :account_id and canvas_id = :canvas_id and path = :path;

-- name: find_unknown_assets
-- Return those of these blob keys that were created long ago and belong to no asset of a canvas or a version.
select json_extract(found.value, '$[0]') as blob_key
  from json_each(:keys) as found
 where json_extract(found.value, '$[1]') < :before
   and not exists (select 1 from canvas_assets
                    where canvas_assets.blob_key = json_extract(found.value, '$[0]'))
   and not exists (select 1 from canvas_version_assets v
                    where v.blob_key = json_extract(found.value, '$[0]') and v.blob_key is not null);

-- name: add_view
-- Store a view. It expires unless its instance renews it.
insert into canvas_views (account_id, canvas_id, view_id, client_id, connection_id, expires_at)
values (:account_id, :canvas_id, :view_id, :client_id, :connection_id, :expires_at);

-- name: remove_view
-- Delete a view of a canvas.
delete from canvas_views where account_id = :account_id and canvas_id = :canvas_id and view_id = :view_id;

-- name: renew_views
-- Extend the expiry of the views of these connections.
update canvas_views set expires_at = :expires_at
 where connection_id in (select value from json_each(:connection_ids));

-- name: list_views
-- List the views of a connection.
select account_id, canvas_id, view_id, client_id, connection_id from canvas_views
 where connection_id = :connection_id;

-- name: list_expired_views
-- List the views that their instance did not renew in time.
select account_id, canvas_id, view_id, client_id, connection_id from canvas_views
 where expires_at <= :now order by expires_at limit :limit;

-- name: add_canvas_event
-- Store one event at its position in the log of a canvas.
insert into canvas_events (account_id, canvas_id, seq, event_type, visibility, payload, created_at)
values (:account_id, :canvas_id, :seq, :event_type, :visibility, :payload, :now);

-- name: log_reference
-- Store a reference from an event or a record of a canvas to an artifact, with the position of this mention.
insert into artifact_refs (account_id, artifact_id, canvas_id, mentioned_seq)
select account_id, artifact_id, :canvas_id, :seq from artifacts
 where account_id = :account_id and artifact_id = :artifact_id and is_stored
on conflict (account_id, artifact_id, canvas_id) where canvas_id is not null
do update set mentioned_seq = excluded.mentioned_seq;

-- name: hold_reference
-- Store a reference from the state or the spec of a canvas to an artifact, once: both are compared before a
-- reference is released.
insert into artifact_refs (account_id, artifact_id, canvas_id, mentioned_seq)
select account_id, artifact_id, :canvas_id, :seq from artifacts
 where account_id = :account_id and artifact_id = :artifact_id and is_stored
on conflict do nothing;

-- name: canvas_bounds
-- Return the first and the last position of a canvas's log.
select oldest_seq, last_seq from canvases
 where account_id = :account_id and canvas_id = :canvas_id and deleted_at is null;

-- name: canvas_heads
-- Return the last position of each of these logs. An instance polls once for all its subscribers.
select account_id, canvas_id, last_seq
  from canvases
 where (account_id, canvas_id) in (select json_extract(value, '$[0]'), json_extract(value, '$[1]')
                                  from json_each(:canvases))
   and deleted_at is null;

-- name: canvas_after
-- Return a page of a canvas's log, each event with the agent that has the canvas. RX-36, RS-67
select seq, event_type, visibility, created_at, payload,
       (select agent_id from canvases where account_id = :account_id and canvas_id = :canvas_id) as agent_id
  from canvas_events where account_id = :account_id and canvas_id = :canvas_id and seq > :cursor
 order by seq limit :limit;

-- name: find_old_logs
-- Return the next page of canvases of all accounts, and whether the first event of each log is old.
select c.account_id, c.canvas_id, c.oldest_seq < c.last_seq and coalesce(e.created_at < :before, 0) as is_old
  from (select * from canvases
         where (account_id, canvas_id) > (:account_id, :canvas_id)
         order by account_id, canvas_id limit :limit) c
  left join canvas_events e
    on e.account_id = c.account_id and e.canvas_id = c.canvas_id and e.seq = c.oldest_seq
 order by c.account_id, c.canvas_id;

-- name: trim_canvas_log
-- Move the start of a log past old events, at most `step`. The last event is kept.
update canvases as c
   set oldest_seq = coalesce((select min(seq) from canvas_events e
                               where e.account_id = c.account_id and e.canvas_id = c.canvas_id
                                 and e.seq >= c.oldest_seq and e.seq < min(c.last_seq, c.oldest_seq + :step)
                                 and e.created_at >= :before),
                             min(c.last_seq, c.oldest_seq + :step))
 where account_id = :account_id and canvas_id = :canvas_id and oldest_seq < last_seq
returning oldest_seq;

-- name: delete_canvas_events
-- Delete the events before the start of a log.
delete from canvas_events where account_id = :account_id and canvas_id = :canvas_id and seq < :oldest_seq
returning seq;
