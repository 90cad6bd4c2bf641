-- Add the paths of the state with values that no person wrote since a person accepted the canvas: a JSON object
-- of JSON pointers and authors.
alter table canvases add column unreviewed text not null default '{}';
