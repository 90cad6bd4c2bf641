-- Until when whoever made a call is believed to wait for it. Only adds.
alter table calls add column heard_until integer not null default 9223372036854775807;
