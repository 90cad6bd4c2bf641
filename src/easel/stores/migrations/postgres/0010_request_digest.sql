-- What a request has asked for, so that the same name for another is found out. Only adds.
alter table canvas_actions add column request_digest text;
