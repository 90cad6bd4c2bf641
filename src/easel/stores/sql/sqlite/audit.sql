-- name: head
-- Return the seq and the hash of the last record. There is one writer, so they do not change before the
-- commit.
select last_seq, last_hash from audit_head;

-- name: add_record
-- Append one record to the audit chain. CC-06
insert into audit (seq, account_id, at, storage_class, action, record, hash)
values (:seq, :account_id, :at, :storage_class, :action, :record, :hash);

-- name: move_head
-- Store the seq and the hash of the last record. CC-06
update audit_head set last_seq = :last_seq, last_hash = :last_hash;

-- name: newest_records
-- Return the texts of the newest records, without their numbers.
select substr(record, instr(record, ',') + 1) as rest
  from audit
 where seq > (select last_seq from audit_head) - :limit;

-- name: store_checkpoint
-- Store a checkpoint. Returns no row if a later checkpoint is stored. RS-69
insert into audit_checkpoint (seq, hash, signature) values (:seq, :hash, :signature)
on conflict (only_row) do update
   set seq = excluded.seq, hash = excluded.hash, signature = excluded.signature
 where audit_checkpoint.seq < excluded.seq
returning seq;

-- name: remove_records
-- Remove the records up to the checkpoint. RS-69
delete from audit where seq <= :seq;

-- name: records_after
-- Return a page of the audit chain in order of seq, for verification. A time that Python cannot represent is
-- replaced by the nearest valid one.
select seq, account_id, min(max(at, -62135510400000000), 253402128000000000) as at,
       storage_class, action, record, hash
  from audit
 where seq > :seq and seq <= :last
 order by seq
 limit :limit;

-- name: list_records
-- List records, newest first. All filters are applied before the limit.
select seq, account_id, min(max(at, -62135510400000000), 253402128000000000) as at,
       storage_class, action, record, hash
  from audit
 where seq < :before
   and (:storage_class is null or storage_class = :storage_class)
   and (:since is null or at >= :since)
   and (:until is null or at < :until)
 order by seq desc
 limit :limit;

-- name: list_records_of_action
-- List the records of one action, newest first. This separate statement uses the index on the action.
select seq, account_id, min(max(at, -62135510400000000), 253402128000000000) as at,
       storage_class, action, record, hash
  from audit
 where action = :action and seq < :before
   and (:storage_class is null or storage_class = :storage_class)
   and (:since is null or at >= :since)
   and (:until is null or at < :until)
 order by seq desc
 limit :limit;
