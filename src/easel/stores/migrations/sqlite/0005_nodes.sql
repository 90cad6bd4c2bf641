-- Add tokens of principals, tool nodes, and calls to connections of other instances. Older code keeps
-- working. Times are whole microseconds since 1970, UTC.

-- Tokens that authenticate a principal. Only the digest of a token is stored.
create table tokens (
  token_id text not null primary key,
  account_id text not null references accounts(account_id) on delete cascade,
  kind text not null constraint token_kind_is_known check (kind in ('user', 'node', 'service')),
  name text not null,
  -- The only node that may use the token; null means any.
  node_id text constraint only_nodes_have_a_node check (node_id is null or kind = 'node'),
  digest text not null unique,
  created_at integer not null,
  revoked_at integer
) strict;
create index tokens_account_idx on tokens(account_id, token_id);

-- Connected machines and their tools. A row expires if the process of the connection crashes.
create table nodes (
  account_id text not null references accounts(account_id) on delete cascade,
  node_id text not null,
  connection_id text not null unique,
  instance_id text not null,
  version text not null,
  platform text not null,
  tools text not null,
  connected_at integer not null,
  expires_at integer not null,
  primary key (account_id, node_id)
) strict;

-- Calls to a connection of another instance. Unused in SQLite, which serves one process.
create table calls (
  call_id text not null primary key,
  account_id text not null references accounts(account_id) on delete cascade,
  -- The connection, not the node: when the connection ends, the call fails.
  target text not null,
  method text not null,
  params text not null,
  status text not null constraint call_status_is_known check (status in ('asked', 'taken', 'answered')),
  answer text,
  deadline integer not null,
  cancelled_at integer,
  -- A call has an answer exactly if it is answered.
  constraint answered_means_answer check ((answer is not null) = (status = 'answered'))
) strict;
create index calls_target_idx on calls(target) where status <> 'answered';
create index calls_deadline_idx on calls(deadline);
