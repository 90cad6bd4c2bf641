-- Add the checkpoint of the audit chain: the signed position of the last record that was removed.
create table audit_checkpoint (
  only_row integer primary key check (only_row = 1),
  seq integer not null constraint seq_from_one check (seq >= 1),
  hash text not null,
  signature text not null,
  cut_at integer not null
) strict;
