-- Until when whoever made a call is believed to wait for it. Only adds; what an older instance places is waited for until its deadline.
alter table calls add column heard_until timestamptz not null default 'infinity';
