-- Add the session of a version, and the author of a title. Older code keeps working: it writes neither.

-- The session in whose folder the actions of a version work. Empty: written by older code; the main session.
alter table canvas_versions add column session_key text not null default '';
update canvas_versions v
   set session_key = coalesce(c.owner_session_key, 'agent:' || c.agent_id || ':main')
  from canvases c
 where c.user_id = v.user_id and c.canvas_id = v.canvas_id;
-- Kind and id of the author of the title; null: the author of the spec.
alter table canvases add column titled_by text;
alter table canvas_versions add column titled_by text;
