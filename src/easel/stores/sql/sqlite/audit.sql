-- name: head
-- Return the end of the chain. There is one writer, so it does not change before the commit.
select last_seq, last_hash from audit_head;

-- name: add_record
-- Append one record. CC-06
insert into audit (seq, user_id, at, storage_class, action, record, hash)
values (:seq, :user_id, :at, :storage_class, :action, :record, :hash);

-- name: move_head
-- Set the end of the chain. CC-06
update audit_head set last_seq = :last_seq, last_hash = :last_hash;

-- name: end_of_chain
-- Return the head of the chain and the highest seq of a record in one statement, so that concurrent appends
-- cannot make them disagree.
select (select last_seq from audit_head) as last_seq, (select last_hash from audit_head) as last_hash,
       (select coalesce(max(seq), 0) from audit) as newest;

-- name: records_after
-- Return a page of the chain in its order, for verification. A time outside the readable range is returned as
-- the nearest one inside it.
select seq, user_id, min(max(at, -62135510400000000), 253402128000000000) as at,
       storage_class, action, record, hash
  from audit
 where seq > :seq and seq <= :last
 order by seq
 limit :limit;

-- name: list_records
-- List records, newest first. Every filter is applied before the limit.
select seq, user_id, min(max(at, -62135510400000000), 253402128000000000) as at,
       storage_class, action, record, hash
  from audit
 where seq < :before
   and (:storage_class is null or storage_class = :storage_class)
   and (:since is null or at >= :since)
   and (:until is null or at < :until)
 order by seq desc
 limit :limit;

-- name: list_records_of_action
-- List the records of one action by its own index, newest first.
select seq, user_id, min(max(at, -62135510400000000), 253402128000000000) as at,
       storage_class, action, record, hash
  from audit
 where action = :action and seq < :before
   and (:storage_class is null or storage_class = :storage_class)
   and (:since is null or at >= :since)
   and (:until is null or at < :until)
 order by seq desc
 limit :limit;
