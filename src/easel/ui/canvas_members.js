// @ts-check
// The members of an action and of `toolPolicy` in words: one table for the panel in which a person accepts a
// spec and for the question before a call, so that both show every member. RS-72
//
// A new member of `core/canvas/actions.py` or `core/canvas/spec.py` needs one row, `name: row("In words")`;
// a test compares the names. The second argument of `row` gives the value in words, by a function or by a
// table; without it, a text is shown as it is and any other value as JSON. A member without a row is shown by
// its name.

const list = (none) => (values) => (Array.isArray(values) ? values.join(", ") || none : values && "yes");

/** @param {any} words how a value is shown: a function, or a text for each value */
function row(label, words = (value) => value) {
  return (value) => [[label, typeof words === "function" ? words(value) : words[value] ?? value]];
}

const shownElsewhere = () => [];

export const ACTION_MEMBERS = {
  kind: shownElsewhere, // each kind has a row of its own: "Tool", "Message" or "Changes the state"
  title: shownElsewhere, // in the heading
  tool: row("Tool"),
  args: (args) => Object.entries(args ?? {}),
  sessionKey: row("To the session"),
  message: row("Message"),
  patch: row("Changes the state"),
  secrets: row("Uses your secrets", list("none")),
  text: row("Takes any text", list("nothing")),
  allowOptions: row("A value may be an option of a program", list("none")),
  missing: row("Where a value is missing", { fail: "it fails", empty: "it goes on with an empty text" }),
  saveAs: row("Stores its result as"),
  saveMode: row("Stores it", {
    replace: "in place of the former one",
    merge: "merged into the former one",
    append: "at the end of a list",
  }),
  parse: row("Reads the result as", { json: "JSON", lines: "lines", csv: "CSV" }),
  timeoutMs: row("Is stopped after", (ms) => `${ms / 1000} s`),
  confirm: row("Asks", { auto: "unless its tool only reads", always: "every time" }),
  approval: row("May be approved by", { anyone: "any member", another: "another person than who asked" }),
  description: row("Says of itself"),
};

export const POLICY_MEMBERS = {
  allow: row("Tools", list("none")),
  connect: row("Its page may connect to", list("nothing")),
  hosts: row("Its actions may fetch from", list("nothing")),
  secrets: row("Its actions may send your secrets to its tools", list("none")),
  shell: row("Arguments that a shell reads too"),
  data: row("Arguments in which no shell reads a value", (value) => value),
};

/** Return rows of names and values for all members that are given, in the order of the table. */
export function memberRows(table, members) {
  const names = Object.keys(members).filter((name) => members[name] !== undefined);
  const known = Object.keys(table).filter((name) => names.includes(name));
  const unknown = names.filter((name) => !known.includes(name));
  return [
    ...known.flatMap((name) => table[name](members[name])), ...unknown.map((name) => [name, members[name]]),
  ];
}
