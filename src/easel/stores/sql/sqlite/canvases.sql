-- name: create_canvas
-- Create a canvas; the caller adds its first event in the same transaction. Returns no row if the canvas
-- exists. The log continues after the log of a deleted canvas of the same id.
insert into canvases (account_id, canvas_id, agent_id, title, owner_session_key, spec, state, is_accepted,
                      tool_hints, written_by, titled_by, written_at, consent, created_by, oldest_seq,
                      last_seq, created_at, updated_at)
select :account_id, :canvas_id, :agent_id, :title, :owner_session_key, :spec, :state, :is_accepted,
       :tool_hints, :written_by, :written_by, :now, :consent, :created_by, coalesce(max(last_seq), 0) + 1,
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
       (select json_group_array(json_array(view_id, client_id, connection_id, user_id, expires_at > :now))
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
'{}' as unreviewed, '{}' as consent, created_by, created_at, updated_at;

-- name: delete_version_assets
-- Delete rows of assets of all versions of a canvas that is deleted, and return the keys of their blobs. The
-- rest is purged later.
delete from canvas_version_assets
 where (account_id, canvas_id, version_no, path) in
       (select account_id, canvas_id, version_no, path from canvas_version_assets
         where account_id = :account_id and canvas_id = :canvas_id limit :limit)
returning blob_key;

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
       unreviewed = coalesce(:unreviewed, unreviewed), consent = coalesce(:consent, consent),
       written_at = iif(:written_by is null, written_at, :now),
       revision = revision + :step,
       last_seq = last_seq + :event_count,
       updated_at = iif(:step = 0, updated_at, max(:now, updated_at + 1000))
 where account_id = :account_id and canvas_id = :canvas_id
returning revision, last_seq, spec_revision, is_accepted, updated_at;

-- name: take_canvas_positions
-- Take the log positions of events, which the caller adds in the same transaction. The revision of the canvas
-- stays.
update canvases set last_seq = last_seq + :event_count
 where account_id = :account_id and canvas_id = :canvas_id
returning last_seq, revision;

-- define: refreshes
-- The refresh jobs of the new spec, passed as one list per column.
select :account_id as account_id, :canvas_id as canvas_id, r.value as refresh_id,
       json_extract(:action_ids, '$[' || r.key || ']') as action_id,
       json_extract(:every_ms, '$[' || r.key || ']') as every_ms,
       json_extract(:only_watched, '$[' || r.key || ']') as only_watched
  from json_each(:refresh_ids) as r;

-- name: delete_refreshes
-- Delete the refresh jobs that the new spec has changed or does not contain.
delete from canvas_refreshes
 where account_id = :account_id and canvas_id = :canvas_id
   and (account_id, canvas_id, refresh_id, action_id, every_ms, only_watched) not in (
  -- include: refreshes
);

-- name: add_refreshes
-- Add the refresh jobs of the new spec. Existing jobs keep their due times.
insert into canvas_refreshes (account_id, canvas_id, refresh_id, action_id, every_ms, only_watched, next_at)
select *, :now + every_ms * 1000 from (
  -- include: refreshes
) where true
on conflict do nothing;

-- name: put_assets
-- Store assets; existing assets at their paths are replaced.
insert into canvas_assets (account_id, canvas_id, path, blob_key, size)
select :account_id, :canvas_id, a.value, json_extract(:blob_keys, '$[' || a.key || ']'),
       json_extract(:sizes, '$[' || a.key || ']')
  from json_each(:paths) as a where true
on conflict (account_id, canvas_id, path) do update set blob_key = excluded.blob_key, size = excluded.size;

-- name: add_canvas_event
-- Store one event at its position in the log of a canvas.
  -- include: append_canvas_event

-- name: log_references
-- Store references from an event or a record of a canvas to artifacts, with the position of this mention.
insert into artifact_refs (account_id, artifact_id, canvas_id, mentioned_seq)
select account_id, artifact_id, :canvas_id, :last_seq from artifacts
 where account_id = :account_id and artifact_id = any(:logs) and is_stored
on conflict (account_id, artifact_id, canvas_id) where canvas_id is not null
do update set mentioned_seq = excluded.mentioned_seq;

-- name: hold_references
-- Store references from the state or the spec of a canvas to artifacts, once: both are compared before a
-- reference is released.
insert into artifact_refs (account_id, artifact_id, canvas_id, mentioned_seq)
select account_id, artifact_id, :canvas_id, :last_seq from artifacts
 where account_id = :account_id and artifact_id = any(:holds) and is_stored
on conflict do nothing;

-- name: trim_canvas_log
-- Move the start of a log past old events, at most `step`. The last event is kept.
update canvases as c
   set oldest_seq = coalesce((select min(seq) from canvas_events e
                               where e.account_id = c.account_id and e.canvas_id = c.canvas_id
                                 and e.seq >= c.oldest_seq and e.seq < min(c.last_seq, c.oldest_seq + :step)
                                 and e.created_at >= :now - make_interval(secs => :seconds)),
                             min(c.last_seq, c.oldest_seq + :step))
 where account_id = :account_id and canvas_id = :canvas_id and oldest_seq < last_seq
returning oldest_seq;

-- name: delete_canvas_events
-- Delete the events before the start of a log.
delete from canvas_events where account_id = :account_id and canvas_id = :canvas_id and seq < :oldest_seq
returning seq;
