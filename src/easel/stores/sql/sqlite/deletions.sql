-- name: purge_events
-- Delete some events of these runs.
delete from run_events
 where (run_id, seq) in (select run_id, seq from run_events
                         where run_id in (select value from json_each(:run_ids)) limit :limit)
returning 1;

-- name: purge_canvas_events
-- Delete some events of a deleted canvas.
delete from canvas_events
 where (account_id, canvas_id, seq) in (select account_id, canvas_id, seq from canvas_events
                                     where account_id = :account_id and canvas_id = :canvas_id limit :limit)
returning 1;

-- name: purge_canvas_version_assets
-- Delete some assets of versions of a deleted canvas.
delete from canvas_version_assets
 where (account_id, canvas_id, version_no, path) in
       (select account_id, canvas_id, version_no, path from canvas_version_assets
         where account_id = :account_id and canvas_id = :canvas_id limit :limit)
returning 1;
