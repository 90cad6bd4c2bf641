-- Add the markers of what was taken out of a run's input. Older code ignores them.
-- From here on `messages.content` is a string, or an object of `text` and `attachments`; older rows may be a
-- marker. The deltas of a user's long message are rows of `run_events` before the run's log (`seq` up to 0).
alter table runs add column input_attachments text;
