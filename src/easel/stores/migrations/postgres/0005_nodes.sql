-- Tokens of principals, tool nodes, and calls to a connection that another instance has. Only adds, so that code of before goes on working.

-- What somebody shows to act for a user. The token itself is nowhere: only its digest.
create table tokens (
  token_id text primary key,
  user_id text not null references users(user_id) on delete cascade,
  kind text not null constraint token_kind_is_known check (kind in ('user', 'node', 'service')),
  name text not null,
  -- The only node that it may be; null: any.
  node_id text constraint only_nodes_have_a_node check (node_id is null or kind = 'node'),
  digest text not null unique,
  created_at timestamptz not null default clock_timestamp(),
  revoked_at timestamptz
);
create index tokens_user_idx on tokens(user_id, token_id);

-- Which machines are connected now, wherever, and what they offer. If the instance dies that has the connection, the row runs out.
create table nodes (
  user_id text not null references users(user_id) on delete cascade,
  node_id text not null,
  connection_id text not null unique,
  instance_id text not null,
  version text not null,
  platform text not null,
  -- Text, and not jsonb: a schema stays as it was declared.
  tools json not null,
  connected_at timestamptz not null default clock_timestamp(),
  expires_at timestamptz not null,
  primary key (user_id, node_id)
) with (fillfactor = 70);

-- Calls to a connection, made by another instance than the one that has it. A row lives as long as its call.
create table calls (
  call_id text primary key,
  user_id text not null references users(user_id) on delete cascade,
  -- The connection, and no other of the same name: when it ends, so does the call.
  target text not null,
  method text not null,
  params json not null,
  status text not null constraint call_status_is_known check (status in ('asked', 'taken', 'answered')),
  answer json,
  deadline timestamptz not null,
  cancelled_at timestamptz,
  -- A call is answered once, and then there is an answer.
  constraint answered_means_answer check ((answer is not null) = (status = 'answered'))
);
create index calls_target_idx on calls(target) where status <> 'answered';
create index calls_deadline_idx on calls(deadline);
