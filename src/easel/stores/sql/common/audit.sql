-- name: checkpoint
-- Return the signed position of the last removed record. RS-69
select seq, hash, signature from audit_checkpoint;

-- name: stored_signing_key
-- Return the key that signs checkpoints if EASEL_SECRET_KEY is not set.
select key from server_keys where name = 'signing';

-- name: end_of_chain
-- Return the head of the audit chain and the highest seq of a record. One statement reads both, so that a
-- concurrent append cannot make them disagree.
select (select last_seq from audit_head) as last_seq, (select last_hash from audit_head) as last_hash,
       (select coalesce(max(seq), 0) from audit) as newest;

-- name: records_after
-- Return a page of the audit chain in order of seq, for verification.
select
  -- include: link
  from audit
 where seq > :seq and seq <= :last
 order by seq
 limit :limit;

-- name: list_records
-- List the records of an account and, for an operator of the host, those that belong to no account (else
-- `host_id` is null), newest first. All filters are applied before the limit.
select * from (
select * from (
  select
    -- include: link
    from audit
   where account_id = :account_id and seq < :before
     and (:storage_class::text is null or storage_class = :storage_class)
     and (:since::timestamptz is null or at >= :since)
     and (:until::timestamptz is null or at < :until)
   order by seq desc limit :limit) as own
union all
select * from (
  select
    -- include: link
    from audit
   where account_id = :host_id and seq < :before
     and (:storage_class::text is null or storage_class = :storage_class)
     and (:since::timestamptz is null or at >= :since)
     and (:until::timestamptz is null or at < :until)
   order by seq desc limit :limit) as of_host
) as listed
 order by seq desc
 limit :limit;

-- name: list_records_of_action
-- List the records of one action, as above. This separate statement uses the index on the action.
select * from (
select * from (
  select
    -- include: link
    from audit
   where account_id = :account_id and action = :action and seq < :before
     and (:storage_class::text is null or storage_class = :storage_class)
     and (:since::timestamptz is null or at >= :since)
     and (:until::timestamptz is null or at < :until)
   order by seq desc limit :limit) as own
union all
select * from (
  select
    -- include: link
    from audit
   where account_id = :host_id and action = :action and seq < :before
     and (:storage_class::text is null or storage_class = :storage_class)
     and (:since::timestamptz is null or at >= :since)
     and (:until::timestamptz is null or at < :until)
   order by seq desc limit :limit) as of_host
) as listed
 order by seq desc
 limit :limit;

-- name: store_checkpoint
-- Store a checkpoint. Returns no row if a later checkpoint is stored. RS-69
insert into audit_checkpoint (seq, hash, signature) values (:seq, :hash, :signature)
on conflict (only_row) do update
   set seq = excluded.seq, hash = excluded.hash, signature = excluded.signature
 where audit_checkpoint.seq < excluded.seq
returning seq;

-- name: count_records
-- Count the records up to the checkpoint.
select count(*) as count from audit where seq <= :seq;

-- name: remove_records
-- Remove the records up to the checkpoint. RS-69
delete from audit where seq <= :seq;
