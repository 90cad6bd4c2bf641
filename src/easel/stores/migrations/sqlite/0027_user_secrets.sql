-- Add the secrets that users store for the actions of their canvases. Only the encrypted value is stored.
create table secrets (
  account_id text not null references accounts(account_id) on delete cascade,
  name text not null constraint secret_is_named check (name <> ''),
  key_id text not null,
  data blob not null,
  created_at integer not null,
  updated_at integer not null,
  primary key (account_id, name)
) strict, without rowid;
