-- Add the session of a version, whether it is stored completely, and the author of a title. Older code keeps
-- working: it writes none of them.

-- The session in whose folder the actions of a version work. Empty: written by older code; the main session.
alter table canvas_versions add column session_key text not null default '';
update canvas_versions
   set session_key = (select coalesce(c.owner_session_key, 'agent:' || c.agent_id || ':main') from canvases c
                       where c.user_id = canvas_versions.user_id and c.canvas_id = canvas_versions.canvas_id);
-- Whether it has its spec and all of its assets, not only those that the next version changed.
alter table canvas_versions add column is_complete integer not null default 0 check (is_complete in (0, 1));
-- Kind and id of the author of the title; null: the author of the spec.
alter table canvases add column titled_by text;
alter table canvas_versions add column titled_by text;
