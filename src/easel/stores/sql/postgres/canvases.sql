-- name: create_canvas
-- A canvas with the first event of its log; nothing where there is one already.
with made as (
  insert into canvases (user_id, canvas_id, agent_id, title, spec, state, last_seq)
  values (:user_id, :canvas_id, :agent_id, :title, :spec::text::jsonb, :state::text::jsonb, 1)
  on conflict do nothing
  returning *
), logged as (
  insert into canvas_events (user_id, canvas_id, seq, event_type, visibility, payload)
  select user_id, canvas_id, last_seq, :event_type, :visibility, :payload::text::jsonb from made
), referred as (
  insert into artifact_refs (user_id, artifact_id, canvas_id)
  select a.user_id, a.artifact_id, made.canvas_id
    from made join artifacts a on a.user_id = made.user_id and a.artifact_id = any(:refers_to::text[]) and a.is_stored
     for key share of a
)
select user_id, canvas_id, agent_id, title, spec::text as spec, state::text as state, revision, last_seq, created_at, updated_at from made;

-- name: get_canvas
-- One canvas of this user.
select user_id, canvas_id, agent_id, title, spec::text as spec, state::text as state, revision, last_seq, created_at, updated_at
  from canvases where user_id = :user_id and canvas_id = :canvas_id;

-- name: delete_canvas
-- With its log and what it refers to.
delete from canvases where user_id = :user_id and canvas_id = :canvas_id returning canvas_id;

-- name: append_canvas_event
-- One event under the lock of its canvas: gapless, in the order of commits.
with grown as (
  update canvases set last_seq = last_seq + 1 where user_id = :user_id and canvas_id = :canvas_id
  returning user_id, canvas_id, last_seq
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
select last_seq from grown;

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
