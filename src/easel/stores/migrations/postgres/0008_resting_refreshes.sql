-- Add refresh jobs that run only while their canvas is viewed, and the time at which the next run was
-- scheduled.
alter table canvas_refreshes add column only_watched boolean not null default false;
alter table canvas_refreshes add column put_off_at timestamptz not null default '1970-01-01 00:00:00+00';
