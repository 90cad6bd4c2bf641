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

-- name: find_releasable
-- Return the next page of canvases of all accounts, and whether each has a reference whose last mention is
-- before the start of the log and before all records, or is not known.
select c.account_id, c.canvas_id,
       exists (select 1 from artifact_refs r
                where r.account_id = c.account_id and r.canvas_id = c.canvas_id and r.canvas_id is not null
                  and r.mentioned_seq < min(c.oldest_seq, coalesce(c.oldest_record, c.oldest_seq)))
       or exists (select 1 from artifact_refs r
                   where r.account_id = c.account_id and r.canvas_id = c.canvas_id and r.canvas_id is not null
                     and r.mentioned_seq is null) as is_old
  from (select account_id, canvas_id, oldest_seq,
               (select min(a.log_seq) from executions a
                 where a.account_id = p.account_id and a.canvas_id = p.canvas_id) as oldest_record
          from canvases p
         where (account_id, canvas_id) > (:account_id, :canvas_id)
         order by account_id, canvas_id limit :limit) c
 order by c.account_id, c.canvas_id;

-- name: canvas_references
-- Return references of a canvas whose last mention is before the start of the log and before all records, or
-- is not known.
select * from (
  select artifact_id, mentioned_seq from artifact_refs r
   where r.account_id = :account_id and r.canvas_id = :canvas_id
     and r.mentioned_seq < (select min(c.oldest_seq, coalesce((select min(a.log_seq) from executions a
                                                                where a.account_id = c.account_id
                                                                  and a.canvas_id = c.canvas_id),
                                                              c.oldest_seq))
                              from canvases c where c.account_id = :account_id and c.canvas_id = :canvas_id)
   order by r.mentioned_seq limit :limit)
union all
select * from (
  select artifact_id, mentioned_seq from artifact_refs r
   where r.account_id = :account_id and r.canvas_id = :canvas_id and r.mentioned_seq is null
   limit :limit);

-- name: version_specs
-- Return the specs of versions of a canvas that mention artifacts.
select spec from canvas_versions
 where account_id = :account_id and canvas_id = :canvas_id and spec is not null and instr(spec, 'art_') > 0;
