-- define: link
-- The columns of a record. A time that Python cannot represent is replaced by the nearest valid one.
seq, account_id, min(max(at, -62135510400000000), 253402128000000000) as at,
storage_class, action, record, hash;

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
