-- Add the last error of a refresh job.
alter table canvas_refreshes add column error text;
