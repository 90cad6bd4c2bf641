-- name: create_canvas
-- Create a canvas with the first event of its log. Returns no row if the canvas exists. The log continues
-- after the log of a deleted canvas of the same id. A canvas that is being deleted still exists: waiting for
-- its end would read a number from before the deletion. RS-34
with ended as (
  select coalesce(max(last_seq), 0) as seq from ended_canvases
   where account_id = :account_id and canvas_id = :canvas_id
), made as (
  insert into canvases (account_id, canvas_id, agent_id, title, owner_session_key, spec, state, is_accepted,
                        tool_hints, written_by, titled_by, written_at, oldest_seq, last_seq)
  select :account_id, :canvas_id, :agent_id, :title, :owner_session_key, :spec::text::jsonb,
         :state::text::jsonb, :is_accepted::bool, :tool_hints, :written_by, :written_by, clock_timestamp(),
         ended.seq + 1, ended.seq + 1
    from ended
   where not exists (select 1 from canvases where account_id = :account_id and canvas_id = :canvas_id)
  on conflict do nothing
  returning *
), logged as (
  insert into canvas_events (account_id, canvas_id, seq, event_type, visibility, payload)
  select account_id, canvas_id, last_seq, :event_type, :visibility, :payload::text::jsonb from made
), kept as (
  insert into canvas_assets (account_id, canvas_id, path, blob_key, size)
  select made.account_id, made.canvas_id, a.path, a.blob_key, a.size
    from made, unnest(:paths::text[], :blob_keys::text[], :sizes::bigint[]) as a(path, blob_key, size)
), refreshed as (
  insert into canvas_refreshes (account_id, canvas_id, refresh_id, action_id, every_ms, only_watched, next_at)
  select made.account_id, made.canvas_id, r.refresh_id, r.action_id, r.every_ms, r.only_watched,
         clock_timestamp() + make_interval(secs => r.every_ms / 1000.0)
    from made,
         unnest(:refresh_ids::text[], :action_ids::text[], :every_ms::bigint[], :only_watched::boolean[])
         as r(refresh_id, action_id, every_ms, only_watched)
), referred as (
  insert into artifact_refs (account_id, artifact_id, canvas_id, mentioned_seq)
  select a.account_id, a.artifact_id, made.canvas_id, made.last_seq
    from made
    join artifacts a on a.account_id = made.account_id and a.artifact_id = any(:refers_to::text[])
     and a.is_stored
     for key share of a
)
select account_id, canvas_id, agent_id, title, owner_session_key, spec::text as spec, state::text as state,
       revision, last_seq, spec_revision,
       is_accepted, tool_hints, written_by, titled_by, unreviewed, created_at, updated_at
  from made;

-- name: lock_canvas
-- Lock a canvas until the transaction ends.
select from canvases where account_id = :account_id and canvas_id = :canvas_id for update;

-- name: get_canvas
-- Return one canvas of this account with its assets, views and failing refresh jobs, read in one statement so
-- that they are consistent. CV-46
select account_id, canvas_id, agent_id, title, owner_session_key, spec::text as spec, state::text as state,
       revision, last_seq, spec_revision,
       is_accepted, tool_hints, written_by, titled_by, unreviewed, written_at, created_at, updated_at,
       (select coalesce(json_agg(json_build_array(path, blob_key, size) order by path collate "C"), '[]')
               ::text
          from canvas_assets a where a.account_id = c.account_id and a.canvas_id = c.canvas_id) as assets,
       (select coalesce(json_agg(json_build_array(view_id, client_id, connection_id,
                                                  expires_at > clock_timestamp())
                                 order by view_id), '[]')::text
          from canvas_views v where v.account_id = c.account_id and v.canvas_id = c.canvas_id) as views,
       (select coalesce(json_agg(json_build_array(refresh_id, action_id, failures,
                                                  extract(epoch from next_at - clock_timestamp())::float8,
                                                  error::json)
                                 order by refresh_id collate "C"), '[]')::text
          from canvas_refreshes r
         where r.account_id = c.account_id and r.canvas_id = c.canvas_id and failures > 0) as failing
  from canvases c where account_id = :account_id and canvas_id = :canvas_id and deleted_at is null;

-- define: summary_columns
-- The columns of a canvas in a list, without its spec and its state, which can be large.
account_id, canvas_id, agent_id, title, owner_session_key,
jsonb_build_object('mode', coalesce(spec->'mode', '"html"'))::text as spec,
'{}' as state, revision, last_seq, spec_revision, is_accepted, null as tool_hints, written_by, titled_by,
'{}' as unreviewed, created_at, updated_at;

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

-- name: delete_version_assets
-- Delete rows of assets of all versions of a canvas that is deleted, and return the keys of their blobs. The
-- rest is purged later.
delete from canvas_version_assets
 where ctid = any(array(select ctid from canvas_version_assets
                         where account_id = :account_id and canvas_id = :canvas_id limit :limit))
returning blob_key;

-- name: delete_all_views
-- Delete all views of a canvas that is deleted.
delete from canvas_views where account_id = :account_id and canvas_id = :canvas_id;

-- name: delete_all_refreshes
-- Delete all refresh jobs of a canvas that is deleted.
delete from canvas_refreshes where account_id = :account_id and canvas_id = :canvas_id;

-- name: change_canvas
-- Update a canvas and append its events to its log. Requires the lock of the canvas, so that the positions of
-- events have no gaps and follow the order of commits. CV-15, CV-44
-- A reference gets the position of its last mention by an event or a record (`logs`). One from the state or
-- the spec (`holds`) is stored once: both are compared before a reference is released.
with grown as (
  update canvases
     set title = coalesce(:title::text, title),
         owner_session_key = coalesce(:owner_session_key::text, owner_session_key),
         spec = coalesce(:spec::text::jsonb, spec),
         state = coalesce(:state::text::jsonb, state),
         spec_revision = case when coalesce(:spec, :owner_session_key) is null
                                   and :is_accepted::bool is not false then spec_revision
                              else revision + :step::bigint end,
         is_accepted = coalesce(:is_accepted::bool, is_accepted),
         tool_hints = coalesce(:tool_hints::text, tool_hints),
         written_by = coalesce(:written_by::text, written_by),
         titled_by = coalesce(:titled_by::text, titled_by),
         unreviewed = coalesce(:unreviewed::text, unreviewed),
         written_at = case when :written_by::text is null then written_at else clock_timestamp() end,
         revision = revision + :step::bigint,
         last_seq = last_seq + cardinality(:event_types::text[]),
         updated_at = case when :step::bigint = 0 then updated_at
                           else greatest(clock_timestamp(), updated_at + interval '1 millisecond') end
   where account_id = :account_id and canvas_id = :canvas_id
  returning account_id, canvas_id, revision, last_seq, spec_revision, is_accepted, updated_at
), logged as (
  insert into canvas_events (account_id, canvas_id, seq, event_type, visibility, payload, created_at)
  select account_id, canvas_id, last_seq - cardinality(:event_types) + e.nth, e.event_type, e.visibility,
         e.payload::jsonb, clock_timestamp()
    from grown,
         unnest(:event_types::text[], :visibilities::text[], :payloads::text[])
           with ordinality as e(event_type, visibility, payload, nth)
), referred as (
  insert into artifact_refs (account_id, artifact_id, canvas_id, mentioned_seq)
  select a.account_id, a.artifact_id, g.canvas_id, g.last_seq
    from grown g
    join artifacts a on a.account_id = g.account_id and a.artifact_id = any(:logs::text[]) and a.is_stored
     for key share of a
  on conflict (account_id, artifact_id, canvas_id) where canvas_id is not null
  do update set mentioned_seq = excluded.mentioned_seq
), held as (
  insert into artifact_refs (account_id, artifact_id, canvas_id, mentioned_seq)
  select a.account_id, a.artifact_id, g.canvas_id, g.last_seq
    from grown g
    join artifacts a on a.account_id = g.account_id and a.artifact_id = any(:holds::text[]) and a.is_stored
     for key share of a
  on conflict do nothing
)
select revision, last_seq, spec_revision, is_accepted, updated_at from grown;

-- name: count_pending_executions
-- Count the executions of a canvas that wait for a confirmation and have not expired.
select count(*) as waiting from executions
 where account_id = :account_id and canvas_id = :canvas_id and status = 'asked'
   and created_at > clock_timestamp() - make_interval(secs => :seconds);

-- name: start_execution
-- Store a new execution. Stores nothing if an execution with its request id exists. CV-36
insert into executions (account_id, canvas_id, event_id, action_id, request_id, request_digest, status,
                        actor, tool, resolved, answer, revision, owner_id, log_seq,
                        started_at, ended_at, lease_until)
values (:account_id, :canvas_id, :event_id, :action_id, :request_id, :request_digest, :status,
        :actor::text::json, :tool, :resolved::text::json, :answer::text::json,
        :revision, :owner_id, :log_seq,
        case when :status::text <> 'asked' then clock_timestamp() end,
        case when :status::text in ('completed', 'failed', 'refused') then clock_timestamp() end,
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

-- name: delete_refreshes
-- Delete the refresh jobs that the new spec has changed or does not contain.
delete from canvas_refreshes c
 where account_id = :account_id and canvas_id = :canvas_id
   and not exists (select 1
                     from unnest(:refresh_ids::text[], :action_ids::text[], :every_ms::bigint[],
                                 :only_watched::boolean[])
                                 as r(refresh_id, action_id, every_ms, only_watched)
                    where r.refresh_id = c.refresh_id and r.action_id = c.action_id
                      and r.every_ms = c.every_ms
                      and r.only_watched = c.only_watched);

-- name: add_refreshes
-- Add the refresh jobs of the new spec. Existing jobs keep their due times.
insert into canvas_refreshes (account_id, canvas_id, refresh_id, action_id, every_ms, only_watched, next_at)
select :account_id, :canvas_id, r.refresh_id, r.action_id, r.every_ms, r.only_watched,
       clock_timestamp() + make_interval(secs => r.every_ms / 1000.0)
  from unnest(:refresh_ids::text[], :action_ids::text[], :every_ms::bigint[], :only_watched::boolean[])
         as r(refresh_id, action_id, every_ms, only_watched)
on conflict do nothing;

-- name: put_assets
-- Store assets; existing assets at their paths are replaced.
insert into canvas_assets (account_id, canvas_id, path, blob_key, size)
select :account_id, :canvas_id, a.path, a.blob_key, a.size
  from unnest(:paths::text[], :blob_keys::text[], :sizes::bigint[]) as a(path, blob_key, size)
on conflict (account_id, canvas_id, path) do update set blob_key = excluded.blob_key, size = excluded.size;

-- name: remove_assets
-- Delete the assets at these paths.
delete from canvas_assets where account_id = :account_id and canvas_id = :canvas_id
   and path = any(:paths::text[]);

-- name: find_unknown_assets
-- Return those of these blob keys that were created long ago and belong to no asset of a canvas or a version.
select found.blob_key
  from unnest(:blob_keys::text[], :made_at::timestamptz[]) as found(blob_key, made_at)
 where found.made_at < now() - make_interval(secs => :seconds)
   and not exists (select 1 from canvas_assets where canvas_assets.blob_key = found.blob_key)
   and not exists (select 1 from canvas_version_assets v
                    where v.blob_key = found.blob_key and v.blob_key is not null);

-- name: add_view
-- Store a view. It expires unless its instance renews it.
insert into canvas_views (account_id, canvas_id, view_id, client_id, connection_id, expires_at)
values (:account_id, :canvas_id, :view_id, :client_id, :connection_id,
        clock_timestamp() + make_interval(secs => :seconds));

-- name: remove_views
-- Delete these views of a canvas.
delete from canvas_views
 where account_id = :account_id and canvas_id = :canvas_id and view_id = any(:view_ids::text[]);

-- name: renew_views
-- Extend the expiry of the views of these connections. Rows that another transaction has locked are skipped:
-- the next renewal extends them.
with held as (
  select account_id, canvas_id, view_id from canvas_views
   where connection_id = any(:connection_ids::text[])
     for update skip locked
)
update canvas_views v set expires_at = clock_timestamp() + make_interval(secs => :seconds)
  from held
 where v.account_id = held.account_id and v.canvas_id = held.canvas_id and v.view_id = held.view_id;

-- name: list_views
-- List the views of a connection.
select account_id, canvas_id, view_id, client_id, connection_id from canvas_views
 where connection_id = :connection_id;

-- name: list_expired_views
-- List the views that their instance did not renew in time.
select account_id, canvas_id, view_id, client_id, connection_id from canvas_views
 where expires_at <= statement_timestamp() order by expires_at limit :limit;

-- name: canvas_bounds
-- Return the first and the last position of a canvas's log.
select oldest_seq, last_seq from canvases
 where account_id = :account_id and canvas_id = :canvas_id and deleted_at is null;

-- name: canvas_heads
-- Return the last position of each of these logs. An instance polls once for all its subscribers.
select account_id, canvas_id, last_seq
  from canvases
  join unnest(:account_ids::text[], :canvas_ids::text[]) as w(account_id, canvas_id)
    using (account_id, canvas_id)
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

-- name: trim_canvas_log
-- Delete old events at the start of a log, at most `step`. The last event is kept.
with held as (
  select account_id, canvas_id, oldest_seq, last_seq from canvases
   where account_id = :account_id and canvas_id = :canvas_id for update
), first as (
  select e.seq, e.created_at < clock_timestamp() - make_interval(secs => :seconds) as is_old
    from held h join canvas_events e on e.account_id = h.account_id and e.canvas_id = h.canvas_id
     and e.seq >= h.oldest_seq and e.seq < least(h.last_seq, h.oldest_seq + :step::bigint)
), bound as (
  select coalesce(min(seq) filter (where not is_old), max(seq) + 1) as oldest_seq from first
), shortened as (
  update canvases c set oldest_seq = b.oldest_seq
    from held h, bound b
   where c.account_id = h.account_id and c.canvas_id = h.canvas_id and b.oldest_seq > h.oldest_seq
  returning c.account_id, c.canvas_id, c.oldest_seq
), gone as (
  delete from canvas_events e using shortened s
   where e.account_id = s.account_id and e.canvas_id = s.canvas_id and e.seq < s.oldest_seq
  returning e.seq
)
select count(*) as events from gone;
