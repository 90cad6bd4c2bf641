-- Add the time until which the caller waits for a call.
alter table calls add column heard_until integer not null default 9223372036854775807;
