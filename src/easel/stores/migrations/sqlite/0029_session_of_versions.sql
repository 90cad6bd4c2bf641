-- Add the session of a version (empty: the main one), whether it has its spec and all of its assets, not only
-- those that the next version changed, and kind and id of a title's author (null: that of the spec).
alter table canvas_versions add column session_key text not null default '';
update canvas_versions
   set session_key = (select coalesce(c.owner_session_key, 'agent:' || c.agent_id || ':main') from canvases c
                       where c.account_id = canvas_versions.account_id and c.canvas_id = canvas_versions.canvas_id);
alter table canvas_versions add column is_complete integer not null default 0 check (is_complete in (0, 1));
alter table canvases add column titled_by text;
alter table canvas_versions add column titled_by text;
create index canvas_versions_complete_idx on canvas_versions(account_id, canvas_id, version_no) where is_complete;
