-- Jobs that rest while nobody looks; and when a job's next time was decided, so that a clock that was set back is noticed. Only adds.
alter table canvas_refreshes add column only_watched boolean not null default false;
alter table canvas_refreshes add column put_off_at timestamptz not null default '1970-01-01 00:00:00+00';
