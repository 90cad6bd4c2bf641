-- Add revoked sign-ins of browsers.

-- Cookies are signed and not stored. A row revokes one until it would have expired anyway.
create table ended_sign_ins (
  sign_in_id text primary key,
  account_id text not null references accounts(account_id) on delete cascade,
  forget_at timestamptz not null
);
create index ended_sign_ins_forget_idx on ended_sign_ins(forget_at);
