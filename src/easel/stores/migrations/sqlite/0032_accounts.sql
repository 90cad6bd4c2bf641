-- Accounts are persons or teams, and can be disabled and deleted. People are the persons. RS-76
alter table accounts add column kind text not null default 'person'
  constraint kind_is_known check (kind in ('person', 'team'));
alter table accounts add column disabled_at integer;
-- Set when the account is deleted: its rows and blobs are being purged.
alter table accounts add column deleted_at integer
  constraint deleted_means_disabled check (deleted_at is null or disabled_at is not null);
create index accounts_deleted_idx on accounts (deleted_at) where deleted_at is not null;
create table people (
  user_id text not null primary key references accounts(account_id) on delete cascade,
  is_operator integer not null default 0 check (is_operator in (0, 1))
) strict;
insert into people (user_id, is_operator) values ('owner', 1);
