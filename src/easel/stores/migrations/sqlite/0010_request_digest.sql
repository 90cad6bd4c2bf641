-- Add the digest of a request, to detect a request id that is reused for another request.
alter table canvas_actions add column request_digest text;
