-- Add the secret keys of the server. Delete the resolved calls of executions that have ended: they can
-- contain a secret that a person typed.
create table server_keys (
  name text primary key,
  key text not null constraint key_is_long check (length(key) >= 32),
  created_at integer not null
) strict, without rowid;
update canvas_actions set resolved = null
 where resolved is not null and status in ('completed', 'failed', 'refused');
