-- Jobs that rest while nobody looks; and when a job's next time was decided, so that a clock that was set back is noticed. Only adds.
alter table canvas_refreshes add column only_watched integer not null default 0;
alter table canvas_refreshes add column put_off_at integer not null default 0;
