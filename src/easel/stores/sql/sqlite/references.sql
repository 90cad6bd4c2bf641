-- name: run_references
-- Return the owner of a run and its references.
select r.account_id,
       (select json_group_array(artifact_id) from artifact_refs where run_id = r.run_id) as artifact_ids
  from runs r where r.run_id = :run_id;

-- name: run_mentions
-- Return what a run still has and names artifacts: messages with their events, hidden messages, values of
-- boards, its input, and the remaining events. The condition on messages is that of their partial index.
select content as text from messages
 where run_id = :run_id and (instr(content, 'art_') > 0 or instr(payload, 'art_') > 0)
union all
select payload from messages
 where run_id = :run_id and (instr(content, 'art_') > 0 or instr(payload, 'art_') > 0) and payload is not null
union all
select content from hidden_messages where run_id = :run_id
union all
select value from boards where run_id = :run_id and instr(value, 'art_') > 0
union all
select json_quote(input_text) from runs where run_id = :run_id and instr(input_text, 'art_') > 0
union all
select input_attachments from runs where run_id = :run_id and input_attachments is not null
union all
select payload from run_events where run_id = :run_id;
