-- name: claim_sweep
-- Claim this work for some seconds, unless the last claim is still valid. Returns no row then.
insert into sweeps (name, next_at) values (:name, clock_timestamp() + make_interval(secs => :seconds))
on conflict (name) do update set next_at = excluded.next_at where sweeps.next_at <= clock_timestamp()
returning name;
