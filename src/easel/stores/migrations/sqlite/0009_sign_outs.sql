-- Add revoked sign-ins of browsers. Times are whole microseconds since 1970, UTC.

-- Cookies are signed and not stored. A row revokes one until it would have expired anyway.
create table ended_sign_ins (
  sign_in_id text not null primary key,
  account_id text not null references accounts(account_id) on delete cascade,
  forget_at integer not null
) strict;
create index ended_sign_ins_forget_idx on ended_sign_ins(forget_at);
