-- name: create_canvas
-- A canvas whose log has one event, which follows in the same transaction; nothing where there is one already.
insert into canvases (user_id, canvas_id, agent_id, title, spec, state, last_seq, created_at, updated_at)
values (:user_id, :canvas_id, :agent_id, :title, :spec, :state, 1, :now, :now)
on conflict do nothing
returning *;

-- name: get_canvas
-- One canvas of this user.
select * from canvases where user_id = :user_id and canvas_id = :canvas_id;

-- name: delete_canvas
-- With its log and what it refers to.
delete from canvases where user_id = :user_id and canvas_id = :canvas_id returning canvas_id;

-- name: grow_canvas
-- Make room for one event in a canvas's log.
update canvases set last_seq = last_seq + 1 where user_id = :user_id and canvas_id = :canvas_id returning last_seq;

-- name: add_canvas_event
-- One event at the place that was made for it.
insert into canvas_events (user_id, canvas_id, seq, event_type, visibility, payload, created_at)
values (:user_id, :canvas_id, :seq, :event_type, :visibility, :payload, :now);

-- name: refer_to
-- A canvas speaks of an artifact, which is kept as long as the canvas is.
insert into artifact_refs (user_id, artifact_id, canvas_id)
select user_id, artifact_id, :canvas_id from artifacts where user_id = :user_id and artifact_id = :artifact_id and is_stored
on conflict do nothing;

-- name: canvas_bounds
-- What a canvas's log holds.
select oldest_seq, last_seq from canvases where user_id = :user_id and canvas_id = :canvas_id;

-- name: canvas_heads
-- How far each watched canvas has grown.
select user_id, canvas_id, last_seq
  from canvases
 where (user_id, canvas_id) in (select json_extract(value, '$[0]'), json_extract(value, '$[1]') from json_each(:canvases));

-- name: canvas_after
-- A page of a canvas's log. RX-36
select seq, event_type, visibility, created_at, payload
  from canvas_events where user_id = :user_id and canvas_id = :canvas_id and seq > :cursor order by seq limit :limit;
