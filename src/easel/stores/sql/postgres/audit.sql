-- define: link
-- The columns of a record. A time that Python cannot represent is replaced by the nearest valid one.
seq, account_id, least(greatest(at, '0001-01-02Z'), '9999-12-30Z') as at, storage_class, action, record, hash;

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
