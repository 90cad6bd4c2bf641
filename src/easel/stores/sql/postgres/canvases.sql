-- name: create_canvas
-- A canvas with the first event of its log; nothing where there is one already.
with ended as (
  select coalesce(max(last_seq), 0) as seq from ended_canvases where user_id = :user_id and canvas_id = :canvas_id
), made as (
  insert into canvases (user_id, canvas_id, agent_id, title, owner_session_key, spec, state, oldest_seq, last_seq)
  select :user_id, :canvas_id, :agent_id, :title, :owner_session_key, :spec::text::jsonb, :state::text::jsonb, ended.seq + 1, ended.seq + 1
    from ended
  on conflict do nothing
  returning *
), logged as (
  insert into canvas_events (user_id, canvas_id, seq, event_type, visibility, payload)
  select user_id, canvas_id, last_seq, :event_type, :visibility, :payload::text::jsonb from made
), kept as (
  insert into canvas_assets (user_id, canvas_id, path, blob_key, size)
  select made.user_id, made.canvas_id, a.path, a.blob_key, a.size
    from made, unnest(:paths::text[], :blob_keys::text[], :sizes::bigint[]) as a(path, blob_key, size)
), referred as (
  insert into artifact_refs (user_id, artifact_id, canvas_id)
  select a.user_id, a.artifact_id, made.canvas_id
    from made join artifacts a on a.user_id = made.user_id and a.artifact_id = any(:refers_to::text[]) and a.is_stored
     for key share of a
)
select user_id, canvas_id, agent_id, title, owner_session_key, spec::text as spec, state::text as state, revision, last_seq, created_at,
       updated_at
  from made;

-- name: lock_canvas
-- From here to the end of the transaction nobody else changes this canvas.
select from canvases where user_id = :user_id and canvas_id = :canvas_id for update;

-- name: get_canvas
-- One canvas of this user with its assets and those who look at it, as they are at one moment. CV-46
select user_id, canvas_id, agent_id, title, owner_session_key, spec::text as spec, state::text as state, revision, last_seq, created_at,
       updated_at,
       (select coalesce(json_agg(json_build_array(path, blob_key, size) order by path collate "C"), '[]')::text
          from canvas_assets a where a.user_id = c.user_id and a.canvas_id = c.canvas_id) as assets,
       (select coalesce(json_agg(json_build_array(view_id, client_id, connection_id, expires_at > clock_timestamp()) order by view_id), '[]')::text
          from canvas_views v where v.user_id = c.user_id and v.canvas_id = c.canvas_id) as views
  from canvases c where user_id = :user_id and canvas_id = :canvas_id;

-- name: list_canvases
-- A page of this user's canvases, of one agent or of all, by id. CV-33
select user_id, canvas_id, agent_id, title, owner_session_key, jsonb_build_object('mode', coalesce(spec->'mode', '"html"'))::text as spec,
       '{}' as state, revision, last_seq, created_at, updated_at
  from canvases
 where user_id = :user_id and (:agent_id::text is null or agent_id = :agent_id::text) and canvas_id collate "C" > :after::text
 order by canvas_id collate "C" limit :limit;

-- name: end_canvas
-- Where a canvas of the same name will go on.
insert into ended_canvases (user_id, canvas_id, last_seq)
select user_id, canvas_id, last_seq from canvases where user_id = :user_id and canvas_id = :canvas_id
on conflict (user_id, canvas_id) do update set last_seq = excluded.last_seq;

-- name: delete_canvas
-- With its log, its assets, its views and what it refers to.
delete from canvases where user_id = :user_id and canvas_id = :canvas_id returning canvas_id;

-- name: change_canvas
-- What a change leaves of a canvas, and its event, under the lock that was taken: gapless, in the order of commits. CV-15, CV-44
with grown as (
  update canvases
     set title = coalesce(:title::text, title),
         owner_session_key = coalesce(:owner_session_key::text, owner_session_key),
         spec = coalesce(:spec::text::jsonb, spec),
         state = coalesce(:state::text::jsonb, state),
         revision = revision + :step::bigint,
         last_seq = last_seq + 1,
         updated_at = case when :step::bigint = 0 then updated_at else greatest(clock_timestamp(), updated_at + interval '1 millisecond') end
   where user_id = :user_id and canvas_id = :canvas_id
  returning user_id, canvas_id, revision, last_seq, updated_at
), logged as (
  insert into canvas_events (user_id, canvas_id, seq, event_type, visibility, payload, created_at)
  select user_id, canvas_id, last_seq, :event_type, :visibility, :payload::text::jsonb, clock_timestamp() from grown
), referred as (
  insert into artifact_refs (user_id, artifact_id, canvas_id)
  select a.user_id, a.artifact_id, g.canvas_id
    from grown g join artifacts a on a.user_id = g.user_id and a.artifact_id = any(:refers_to::text[]) and a.is_stored
     for key share of a
  on conflict do nothing
)
select revision, last_seq, updated_at from grown;

-- name: put_assets
-- These assets, in the place of what had their paths.
insert into canvas_assets (user_id, canvas_id, path, blob_key, size)
select :user_id, :canvas_id, a.path, a.blob_key, a.size
  from unnest(:paths::text[], :blob_keys::text[], :sizes::bigint[]) as a(path, blob_key, size)
on conflict (user_id, canvas_id, path) do update set blob_key = excluded.blob_key, size = excluded.size;

-- name: remove_assets
-- These are assets no more.
delete from canvas_assets where user_id = :user_id and canvas_id = :canvas_id and path = any(:paths::text[]);

-- name: unknown_assets
-- Which of these keys, each with the time it was made, are old and belong to no asset.
select found.blob_key
  from unnest(:blob_keys::text[], :made_at::timestamptz[]) as found(blob_key, made_at)
 where found.made_at < now() - make_interval(secs => :seconds)
   and not exists (select 1 from canvas_assets where canvas_assets.blob_key = found.blob_key);

-- name: add_view
-- Somebody looks at a canvas, and is believed to for so long.
insert into canvas_views (user_id, canvas_id, view_id, client_id, connection_id, expires_at)
values (:user_id, :canvas_id, :view_id, :client_id, :connection_id, clock_timestamp() + make_interval(secs => :seconds));

-- name: remove_views
-- They look no more.
delete from canvas_views where user_id = :user_id and canvas_id = :canvas_id and view_id = any(:view_ids::text[]);

-- name: renew_views
-- The connections of these views are alive.
update canvas_views set expires_at = clock_timestamp() + make_interval(secs => :seconds) where connection_id = any(:connection_ids::text[]);

-- name: views_of
-- What a connection displays.
select user_id, canvas_id, view_id, client_id, connection_id from canvas_views where connection_id = :connection_id;

-- name: expired_views
-- Views whose instance has not been heard of for too long.
select user_id, canvas_id, view_id, client_id, connection_id from canvas_views where expires_at <= clock_timestamp() order by expires_at limit :limit;

-- name: canvas_bounds
-- What a canvas's log holds.
select oldest_seq, last_seq from canvases where user_id = :user_id and canvas_id = :canvas_id;

-- name: canvas_heads
-- How far each watched canvas has grown.
select user_id, canvas_id, last_seq
  from canvases join unnest(:user_ids::text[], :canvas_ids::text[]) as w(user_id, canvas_id) using (user_id, canvas_id);

-- name: canvas_after
-- A page of a canvas's log. RX-36
select seq, event_type, visibility, created_at, payload::text as payload
  from canvas_events where user_id = :user_id and canvas_id = :canvas_id and seq > :cursor order by seq limit :limit;
