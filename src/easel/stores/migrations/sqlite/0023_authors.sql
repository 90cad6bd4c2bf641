-- Add the author of a canvas's spec and assets: the kind and the id of the last principal that wrote them.
-- Null: written by an older version.
alter table canvases add column written_by text;
