-- easel: no-transaction
-- Add the indexes by which references are found: of an artifact, for its sweep and for the foreign key; of a
-- canvas, by the position of the last mention; and the messages of a run that mention artifacts, which are
-- few.
create index concurrently if not exists artifact_refs_artifact_idx on artifact_refs(account_id, artifact_id);
create index concurrently if not exists artifact_refs_mentioned_idx
  on artifact_refs(account_id, canvas_id, mentioned_seq) where canvas_id is not null;
create index concurrently if not exists canvas_actions_log_idx on canvas_actions(account_id, canvas_id, log_seq);
create index concurrently if not exists messages_with_artifacts_idx on messages(run_id)
  where content::text like '%art\_%' or payload::text like '%art\_%';
-- The new index of a canvas begins with the same columns.
drop index concurrently if exists artifact_refs_of_canvas_idx;
