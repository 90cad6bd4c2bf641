-- Add refresh jobs that run only while their canvas is viewed, and the time at which the next run was
-- scheduled.
alter table canvas_refreshes add column only_watched integer not null default 0;
alter table canvas_refreshes add column put_off_at integer not null default 0;
