-- name: create_canvas
-- Create a canvas with the first event of its log. Returns no row if the canvas exists. The log continues
-- after the log of a deleted canvas of the same id. A canvas that is being deleted still exists: waiting for
-- its end would read a number from before the deletion. RS-34
with ended as (
  select coalesce(max(last_seq), 0) as seq from ended_canvases
   where account_id = :account_id and canvas_id = :canvas_id
), grown as (
  insert into canvases (account_id, canvas_id, agent_id, title, owner_session_key, spec, state, is_accepted,
                        tool_hints, written_by, titled_by, written_at, consent, created_by, oldest_seq,
                        last_seq)
  select :account_id, :canvas_id, :agent_id, :title, :owner_session_key, :spec::text::jsonb,
         :state::text::jsonb, :is_accepted::bool, :tool_hints, :written_by, :written_by, now(),
         :consent, :created_by,
         ended.seq + 1, ended.seq + 1
    from ended
   where not exists (select 1 from canvases where account_id = :account_id and canvas_id = :canvas_id)
  on conflict do nothing
  returning *
),
  -- include: append_canvas_events
, referred as (
  insert into artifact_refs (account_id, artifact_id, canvas_id, mentioned_seq)
  select a.account_id, a.artifact_id, g.canvas_id, g.last_seq
    from grown g
    join artifacts a on a.account_id = g.account_id and a.artifact_id = any(:logs::text[]) and a.is_stored
     for key share of a
)
select account_id, canvas_id, agent_id, title, owner_session_key, spec::text as spec, state::text as state,
       revision, last_seq, spec_revision,
       is_accepted, tool_hints, written_by, titled_by, unreviewed, consent, created_by, created_at, updated_at
  from grown;

-- name: lock_canvas
-- Lock a canvas until the transaction ends.
select from canvases where account_id = :account_id and canvas_id = :canvas_id for update;

-- name: get_canvas
-- Return one canvas of this account with its assets, views and failing refresh jobs, read in one statement so
-- that they are consistent. CV-46
select account_id, canvas_id, agent_id, title, owner_session_key, spec::text as spec, state::text as state,
       revision, last_seq, spec_revision,
       is_accepted, tool_hints, written_by, titled_by, unreviewed, consent, created_by, written_at,
       created_at, updated_at,
       (select coalesce(json_agg(json_build_array(path, blob_key, size) order by path collate "C"), '[]')
               ::text
          from canvas_assets a where a.account_id = c.account_id and a.canvas_id = c.canvas_id) as assets,
       (select coalesce(json_agg(json_build_array(view_id, client_id, connection_id, user_id,
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
'{}' as unreviewed, '{}' as consent, created_by, created_at, updated_at;

-- name: delete_version_assets
-- Delete rows of assets of all versions of a canvas that is deleted, and return the keys of their blobs. The
-- rest is purged later.
delete from canvas_version_assets
 where ctid = any(array(select ctid from canvas_version_assets
                         where account_id = :account_id and canvas_id = :canvas_id limit :limit))
returning blob_key;

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
         consent = coalesce(:consent::text, consent),
         written_at = case when :written_by::text is null then written_at else clock_timestamp() end,
         revision = revision + :step::bigint,
         last_seq = last_seq + cardinality(:event_types::text[]),
         updated_at = case when :step::bigint = 0 then updated_at
                           else greatest(clock_timestamp(), updated_at + interval '1 millisecond') end
   where account_id = :account_id and canvas_id = :canvas_id
  returning account_id, canvas_id, revision, last_seq, spec_revision, is_accepted, updated_at
),
  -- include: append_canvas_events
, referred as (
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
