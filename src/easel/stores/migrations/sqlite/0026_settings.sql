-- Add the settings of users. A secret is encrypted, with the id of its key, and has no plain value. RX-19
create table settings (
  account_id text not null references accounts(account_id) on delete cascade,
  name text not null constraint setting_is_named check (name <> ''),
  value text,
  encrypted blob,
  key_id text,
  updated_at integer not null,
  primary key (account_id, name),
  constraint value_or_encrypted check ((value is null) = (encrypted is not null)),
  constraint encrypted_has_key check ((encrypted is null) = (key_id is null))
) strict, without rowid;
