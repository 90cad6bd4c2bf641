-- End the leases of one run, or those that runs of a session hold or that are of documents of the session,
-- because the user acted. RS-79
create or replace function end_leases(for_user text, for_session text, for_run text, by_run text, event text) returns text[]
language plpgsql as $$
declare
  leased record;
  place record;
  raised bigint;
  ended text[];
begin
  for leased in
    select canvas_id from documents
     where lease_id is not null and user_id = for_user
       and case when for_run is null then for_session in (lease_session_id, session_id)
                else lease_run_id = for_run end
     order by canvas_id collate "C"  -- as the other transactions that lock several documents
  loop
    perform from canvases where user_id = for_user and canvas_id = leased.canvas_id for update;
    update documents
       set epoch = epoch + 1, inspected = '[]', lease_id = null,
           lease_run_id = null, lease_session_id = null, lease_expires_at = null
     where user_id = for_user and canvas_id = leased.canvas_id and lease_id is not null
       and case when for_run is null then for_session in (lease_session_id, session_id)
                else lease_run_id = for_run end
    returning epoch into raised;
    continue when not found;
    update canvases set last_seq = last_seq + 1 where user_id = for_user and canvas_id = leased.canvas_id
    returning last_seq, revision into place;
    insert into canvas_events (user_id, canvas_id, seq, event_type, visibility, payload, created_at)
    values (for_user, leased.canvas_id, place.last_seq, 'canvas.lease.changed', 'public',
            event::jsonb || jsonb_build_object(
              'canvasId', leased.canvas_id, 'revision', place.revision, 'canvas_epoch', raised,
              'provenance', event::jsonb->'provenance'
                || jsonb_build_object('agent_id', for_user, 'run_id', by_run)),
            clock_timestamp());
    ended := ended || leased.canvas_id;
  end loop;
  return ended;
end $$;
