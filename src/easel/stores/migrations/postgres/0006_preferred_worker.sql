-- A session prefers the worker that it had last. Only adds, so that code of before goes on working: what it writes prefers nobody.

-- Who ended the session's last run.
alter table sessions add column last_worker_id text;

alter table runs
  -- When its session's turn came to it; null where code of before gave it.
  add column turn_at timestamptz,
  -- Who has the first chance to claim it, for a moment from then on; null: nobody in particular.
  add column preferred_worker text;
