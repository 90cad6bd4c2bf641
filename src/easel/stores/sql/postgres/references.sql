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

-- name: find_releasable
-- Return the next page of canvases of all accounts, and whether each has a reference whose last mention is
-- before the start of the log and before all records, or is not known. Scalar subqueries instead of `exists`,
-- for which Postgres may read all references.
select c.account_id, c.canvas_id,
       (select 1 from artifact_refs r
         where r.account_id = c.account_id and r.canvas_id = c.canvas_id
           and r.mentioned_seq < least(c.oldest_seq, c.oldest_record) limit 1) is not null
       or (select 1 from artifact_refs r
            where r.account_id = c.account_id and r.canvas_id = c.canvas_id
              and r.mentioned_seq is null limit 1)
          is not null as is_old
  from (select account_id, canvas_id, oldest_seq,
               (select min(a.log_seq) from executions a
                 where a.account_id = p.account_id and a.canvas_id = p.canvas_id) as oldest_record
          from canvases p
         where (account_id, canvas_id) > (:account_id::text, :canvas_id::text)
         order by account_id, canvas_id limit :limit) c
 order by c.account_id, c.canvas_id;

-- name: canvas_references
-- Return references of a canvas whose last mention is before the start of the log and before all records, or
-- is not known.
with bound as materialized (
  select least(oldest_seq, (select min(a.log_seq) from executions a
                             where a.account_id = c.account_id and a.canvas_id = c.canvas_id)) as seq
    from canvases c where account_id = :account_id and canvas_id = :canvas_id
)
(select artifact_id, mentioned_seq from artifact_refs r
  where r.account_id = :account_id and r.canvas_id = :canvas_id and r.mentioned_seq < (select seq from bound)
  order by r.mentioned_seq limit :limit)
union all
(select artifact_id, mentioned_seq from artifact_refs r
  where r.account_id = :account_id and r.canvas_id = :canvas_id and r.mentioned_seq is null
  limit :limit);

-- name: version_specs
-- Return the specs of versions of a canvas that mention artifacts.
select spec::text as spec from canvas_versions
 where account_id = :account_id and canvas_id = :canvas_id
   and spec is not null and strpos(spec::text, 'art_') > 0;
