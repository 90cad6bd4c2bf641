-- Add the session of a version (empty: the main one), whether it has its spec and all of its assets, not only
-- those that the next version changed, and kind and id of a title's author (null: that of the spec).
alter table canvas_versions add column session_key text not null default '';
update canvas_versions v
   set session_key = coalesce(c.owner_session_key, 'agent:' || c.agent_id || ':main')
  from canvases c
 where c.account_id = v.account_id and c.canvas_id = v.canvas_id;
alter table canvas_versions add column is_complete boolean not null default false;
alter table canvases add column titled_by text;
alter table canvas_versions add column titled_by text;
