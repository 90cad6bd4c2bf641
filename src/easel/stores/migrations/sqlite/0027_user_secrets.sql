-- Add the secrets that users store for the actions of their canvases. Only the encrypted value is stored.
create table secrets (
  user_id text not null references users(user_id) on delete cascade,
  name text not null constraint secret_is_named check (name <> ''),
  key_id text not null,
  data blob not null,
  created_at integer not null,
  updated_at integer not null,
  primary key (user_id, name)
) strict, without rowid;
