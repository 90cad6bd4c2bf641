-- The least that a durable run needs: a row to claim and fence by, and a log in order.
create table runs (
    run_id   bigint generated always as identity primary key,
    status   text not null default 'queued',
    input    text not null,
    owner_id text,
    attempt  int not null default 0,
    last_seq bigint not null default 0,
    created_at  timestamptz not null default now(),
    started_at  timestamptz,
    finished_at timestamptz
);
create index runs_queued on runs (run_id) where status = 'queued';
create table run_events (
    run_id     bigint not null,
    seq        bigint not null,
    event_type text not null,
    payload    jsonb not null,
    created_at timestamptz not null default clock_timestamp(),
    primary key (run_id, seq)
);
