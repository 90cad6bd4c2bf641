-- Add the kind of the author of board values, and the remembered hints of a canvas's tools. Older code keeps
-- working.

-- person, agent, service or node; null: stored by an older version.
alter table boards add column kind text;

-- JSON: for each allowed tool its hints and shell arguments, as they were when the spec was written or
-- accepted. Null: not remembered yet.
alter table canvases add column tool_hints text;
