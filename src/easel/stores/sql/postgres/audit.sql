-- name: append_records
-- Append records to the audit chain, under the lock of its head. Each record text contains its seq; its hash
-- covers the previous hash and the text. This is one statement, so that a stalled client never holds the lock
-- that all other writers need. CC-06
with recursive head as (
  select last_seq, last_hash from audit_head for update
), entries as (
  select * from unnest(:account_ids::text[], :ats::timestamptz[], :storage_classes::text[], :actions::text[],
                       :rests::text[])
    with ordinality as given(account_id, at, storage_class, action, rest, nth)
), chain(nth, seq, record, hash) as (
  select 0::bigint, last_seq, ''::text, last_hash from head
  union all
  select entries.nth, chain.seq + 1, numbered.record,
         encode(sha256(convert_to(chain.hash || chr(10) || numbered.record, 'UTF8')), 'hex')
    from chain
    join entries on entries.nth = chain.nth + 1
   cross join lateral (select '{"seq":' || (chain.seq + 1) || ',' || entries.rest as record) as numbered
), added as (
  insert into audit (seq, account_id, at, storage_class, action, record, hash)
  select chain.seq, account_id, at, storage_class, action, chain.record, chain.hash
    from chain join entries using (nth)
)
update audit_head set last_seq = newest.seq, last_hash = newest.hash
  from (select seq, hash from chain order by nth desc limit 1) as newest
returning audit_head.last_seq;

-- name: lock_head
-- Lock the chain, before the check for records that an earlier attempt has stored.
select last_seq from audit_head for update;

-- name: newest_records
-- Return the texts of the newest records, without their numbers.
select substr(record, position(',' in record) + 1) as rest
  from audit
 where seq > (select last_seq from audit_head) - :limit::bigint;

-- name: shorten_chain
-- Store a checkpoint and remove the records up to it. Returns no row if a later checkpoint is stored. RS-69
with moved as (
  insert into audit_checkpoint (seq, hash, signature) values (:seq, :hash, :signature)
  on conflict (only_row) do update
     set seq = excluded.seq, hash = excluded.hash, signature = excluded.signature
   where audit_checkpoint.seq < excluded.seq
  returning seq
), removed as (
  delete from audit using moved where audit.seq <= moved.seq returning 1
)
select count(*) as count from removed;

-- name: records_after
-- Return a page of the audit chain in order of seq, for verification. A time that Python cannot represent is
-- replaced by the nearest valid one.
select seq, account_id, least(greatest(at, '0001-01-02Z'), '9999-12-30Z') as at,
       storage_class, action, record, hash
  from audit
 where seq > :seq and seq <= :last
 order by seq
 limit :limit;

-- name: list_records
-- List records, newest first. All filters are applied before the limit.
select seq, account_id, least(greatest(at, '0001-01-02Z'), '9999-12-30Z') as at,
       storage_class, action, record, hash
  from audit
 where seq < :before
   and (:storage_class::text is null or storage_class = :storage_class)
   and (:since::timestamptz is null or at >= :since)
   and (:until::timestamptz is null or at < :until)
 order by seq desc
 limit :limit;

-- name: list_records_of_action
-- List the records of one action, newest first. This separate statement uses the index on the action.
select seq, account_id, least(greatest(at, '0001-01-02Z'), '9999-12-30Z') as at,
       storage_class, action, record, hash
  from audit
 where action = :action and seq < :before
   and (:storage_class::text is null or storage_class = :storage_class)
   and (:since::timestamptz is null or at >= :since)
   and (:until::timestamptz is null or at < :until)
 order by seq desc
 limit :limit;
