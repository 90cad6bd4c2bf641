-- A session prefers the worker that it had last. Only adds, so that code of before goes on working: what it writes prefers nobody.
-- Times are whole microseconds since 1970, UTC.

-- Who ended the session's last run.
alter table sessions add column last_worker_id text;

-- When its session's turn came to it; null where code of before gave it.
alter table runs add column turn_at integer;
-- Who has the first chance to claim it, for a moment from then on; null: nobody in particular.
alter table runs add column preferred_worker text;
