-- name: claim_sweep
-- Claim this work until `until`, unless the last claim is still valid. Returns no row then.
insert into sweeps (name, next_at) values (:name, :until)
on conflict (name) do update set next_at = excluded.next_at where sweeps.next_at <= :now
returning name;
