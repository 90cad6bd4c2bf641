-- name: purge_events
-- Delete some events of these runs.
delete from run_events
 where ctid = any(array(select ctid from run_events
                         where run_id = any(:run_ids::text[]) limit :limit))
returning 1;

-- name: purge_canvas_events
-- Delete some events of a deleted canvas.
delete from canvas_events
 where ctid = any(array(select ctid from canvas_events
                         where account_id = :account_id and canvas_id = :canvas_id limit :limit))
returning 1;

-- name: purge_canvas_version_assets
-- Delete some assets of versions of a deleted canvas.
delete from canvas_version_assets
 where ctid = any(array(select ctid from canvas_version_assets
                         where account_id = :account_id and canvas_id = :canvas_id limit :limit))
returning 1;
