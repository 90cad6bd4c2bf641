-- name: head
-- Where the chain ends; there is one writer, so nobody else appends before the transaction ends.
select last_seq, last_hash from audit_head;

-- name: add_record
-- One record behind the last one.
insert into audit (seq, user_id, at, storage_class, action, record, hash)
values (:seq, :user_id, :at, :storage_class, :action, :record, :hash);

-- name: move_head
-- The chain ends here now. CC-06
update audit_head set last_seq = :last_seq, last_hash = :last_hash;

-- name: end_of_chain
-- The head and the highest number of any record, in one look: while others append, two looks would not agree.
select (select last_seq from audit_head) as last_seq, (select last_hash from audit_head) as last_hash,
       (select coalesce(max(seq), 0) from audit) as newest;

-- name: records_after
-- A page of the chain in its order, for verifying it. A time that was spoilt beyond what can be read comes as the nearest that can.
select seq, user_id, min(max(at, -62135510400000000), 253402128000000000) as at, storage_class, action, record, hash from audit
 where seq > :seq and seq <= :last
 order by seq
 limit :limit;

-- name: list_records
-- Newest first; every filter is applied before the limit.
select seq, user_id, min(max(at, -62135510400000000), 253402128000000000) as at, storage_class, action, record, hash from audit
 where seq < :before
   and (:storage_class is null or storage_class = :storage_class)
   and (:since is null or at >= :since)
   and (:until is null or at < :until)
 order by seq desc
 limit :limit;

-- name: list_records_of_action
-- The same for one action, by its own index.
select seq, user_id, min(max(at, -62135510400000000), 253402128000000000) as at, storage_class, action, record, hash from audit
 where action = :action and seq < :before
   and (:storage_class is null or storage_class = :storage_class)
   and (:since is null or at >= :since)
   and (:until is null or at < :until)
 order by seq desc
 limit :limit;
