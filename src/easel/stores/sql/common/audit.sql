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
