-- Add the secrets that users store for the actions of their canvases. Only the encrypted value is stored.
create table secrets (
  account_id text not null references accounts(account_id) on delete cascade,
  name text not null constraint secret_is_named check (name <> ''),
  key_id text not null,
  data bytea not null,
  created_at timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp(),
  primary key (account_id, name)
);
