-- Why a job failed the last time, as it was told, for whoever comes later. Only adds.
alter table canvas_refreshes add column error text;
