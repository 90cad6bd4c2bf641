-- Add the time until which the caller waits for a call. Calls of older instances are kept until their
-- deadline.
alter table calls add column heard_until timestamptz not null default 'infinity';
