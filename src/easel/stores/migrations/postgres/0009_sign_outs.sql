-- Browsers that were signed out. Only adds.

-- A cookie is signed and stored nowhere; here is which ones were given back before their time, until they would have ended anyway.
create table ended_sign_ins (
  sign_in_id text primary key,
  user_id text not null references users(user_id) on delete cascade,
  forget_at timestamptz not null
);
create index ended_sign_ins_forget_idx on ended_sign_ins(forget_at);
