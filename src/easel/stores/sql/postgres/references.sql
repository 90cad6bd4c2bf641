-- name: run_references
-- Return the owner of a run and its references.
select r.account_id,
       (select coalesce(json_agg(artifact_id), '[]')::text from artifact_refs
         where run_id = r.run_id) as artifact_ids
  from runs r where r.run_id = :run_id;

-- name: run_mentions
-- Return what a run still has and names artifacts: messages with their events, hidden messages, values of
-- boards, its input, and the remaining events. The condition on messages is that of their partial index.
select content::text as text from messages
 where run_id = :run_id and (content::text like '%art\_%' or payload::text like '%art\_%')
union all
select payload::text from messages
 where run_id = :run_id and (content::text like '%art\_%' or payload::text like '%art\_%')
   and payload is not null
union all
select content::text from hidden_messages where run_id = :run_id
union all
select value::text from boards where run_id = :run_id and value::text like '%art\_%'
union all
select to_json(input_text)::text from runs where run_id = :run_id and input_text like '%art\_%'
union all
select input_attachments::text from runs where run_id = :run_id and input_attachments is not null
union all
select payload::text from run_events where run_id = :run_id;
