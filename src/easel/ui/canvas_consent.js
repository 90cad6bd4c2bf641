// @ts-check
// The consent dialog: it shows exactly the call that will run.
//
// The page of the canvas cannot draw over the dialog or click in it, and a click meant for something else
// does not approve. Approve is enabled when every value was visible to its end (RS-64). Values are shown as
// text; characters that are invisible or change the direction of text are shown by their code points.

import { ACTION_MEMBERS, memberRows } from "./canvas_members.js";
import { SeenValues } from "./canvas_seen.js";
import { byId, element } from "./values.js";

// After a refusal no dialog opens for this long: new confirmations are only listed above the page.
const REST_MS = 3_000;
export const PAUSE_MS = 700; // after the dialog opens, clicks on Approve do not count for this long
const LONG_LINES = 12;
const LONG_CHARACTERS = 500;
const UNSAFE_CHARACTER = /[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu;

export class ConsentDialog {
  #queue = [];
  #shown = null;
  #pause = null;
  #refusedAt = -Infinity;
  #isPauseOver = false;
  #seen = new SeenValues(byId("consent"), byId("consent-bar"), () => this.#update());
  #focusBefore = null; // the focused element before the first question

  /** `on` has: closed(focusBefore), called when no question is left. */
  constructor(on) {
    this.on = on;
    byId("consent-approve").onclick = () => this.#decide("approve");
    byId("consent-refuse").onclick = () => this.#decide("refuse");
    byId("consent-later").onclick = () => this.#decide("later");
    byId("consent").oncancel = (event) => {
      event.preventDefault();
      this.#decide("later");
    };
    // After one Escape a browser closes the next dialog without a cancel event. A late close event may belong
    // to an earlier dialog.
    byId("consent").onclose = () => { if (!byId("consent").open) this.#decide("later"); };
  }

  /** Return whether a dialog was closed so recently that no page may open one. */
  get isResting() { return performance.now() - this.#refusedAt <= REST_MS; }

  /** Return whether a page may open the dialog now. */
  get isAvailable() { return !this.#queue.length && !this.isResting; }

  /** Ask the user. Returns `approve`, `refuse` or `later`; `later` also if the question was withdrawn. */
  ask({ confirmationId, title, why, about, from = null }) {
    return new Promise((resolve) => {
      this.#queue.push({ confirmationId, title, why, about, from, resolve });
      this.#next();
    });
  }

  withdraw(confirmationId) {
    if (this.#shown?.confirmationId === confirmationId) this.#decide("later");
    const isIt = (question) => question.confirmationId === confirmationId;
    for (const question of this.#queue.filter(isIt)) question.resolve("later");
    this.#queue = this.#queue.filter((question) => !isIt(question));
  }

  #next() {
    if (this.#shown || !this.#queue.length) return;
    this.#shown = this.#queue.shift();
    const { title, why, about, from } = this.#shown;
    // Remember the focused element: a frame behind a dialog is inert and loses the focus.
    this.#focusBefore ??= from ?? document.activeElement;
    byId("consent-title").textContent = `Run “${title}”?`;
    byId("consent-why").textContent = why;
    byId("consent-danger").hidden = !about.isDestructive;
    byId("consent-call").replaceChildren(...toRows([...contextRows(about), ...callRows(about.resolved)]));
    byId("consent-approve").disabled = true;
    byId("consent-approve").hidden = about.mayApprove === false; // who asked, where another must approve
    byId("consent").showModal();
    byId("consent-refuse").focus({ preventScroll: true }); // keep the beginning of the question visible
    byId("consent").scrollTop = 0;
    this.#isPauseOver = false;
    this.#seen.watch(byId("consent-call").querySelectorAll("dd"));
    this.#pause = setTimeout(() => {
      this.#isPauseOver = true;
      this.#update();
    }, PAUSE_MS);
  }

  /** Enable Approve after the pause, and only when every value was visible to its end. */
  #update() {
    if (!this.#shown) return;
    byId("consent-more").hidden = this.#seen.isComplete;
    byId("consent-approve").disabled = !(this.#seen.isComplete && this.#isPauseOver);
  }

  #decide(decision) {
    const shown = this.#shown;
    if (!shown) return;
    this.#shown = null;
    clearTimeout(this.#pause); // the next question has its own pause
    this.#seen.stop();
    byId("consent").close();
    shown.resolve(decision);
    if (decision !== "approve") {
      this.#refusedAt = performance.now();
      for (const question of this.#queue.splice(0)) question.resolve("later");
    }
    this.#next();
    if (this.#shown) return;
    const focusBefore = this.#focusBefore;
    this.#focusBefore = null;
    this.on.closed(focusBefore);
  }
}

const AUTHORS = { person: "a person", agent: "an agent", service: "a program", node: "a node" };

/**
 * Return the author of a canvas in words.
 * @param {{kind?: string, name?: string}} [author]
 */
export const describeAuthor = ({ kind, name } = {}) => (
  kind ? `${AUTHORS[kind] ?? kind} (${name})` : "not recorded"
);

/**
 * Return the rows of the authors of a spec and, if another one wrote it, of the title.
 * @param {any} authors
 */
export function authorRows({ writtenBy, titledBy = writtenBy }, note = "") {
  const [author, titleAuthor] = [describeAuthor(writtenBy), describeAuthor(titledBy)];
  const title = author === titleAuthor ? [] : [["Its title is by", titleAuthor]];
  return [...title, ["Written by", `${author}${note}`]];
}

/** Return the rows that name the canvas, its authors and the machine. */
function contextRows({ canvas, isAccepted, runsOn, ...authors }) {
  const note = isAccepted ? "" : ", and no person has accepted it";
  return [["Canvas", canvas], ...authorRows(authors, note), ...(runsOn ? [["Runs on", runsOn]] : [])];
}

/** Return the rows of a complete resolved call: all that decides its effect. */
function callRows(
  {
    kind, sessionKey, secrets = [], env = [], texts = {}, because, askedBy, salt, digest, shell, hints,
    ...members
  },
) {
  const isCall = kind === "tool.call";
  const used = [
    ...secrets.map(({ path, name }) => `${name} (in ${path.join(".")})`), ...env.map((name) => `$${name}`),
  ];
  return [
    ...(because ? [["Why it asks", because]] : []),
    ...(askedBy ? [["Asked for by", askedBy]] : []),
    ...memberRows(ACTION_MEMBERS, {
      ...members, sessionKey: isCall ? undefined : sessionKey, secrets: used.length ? used : undefined,
    }),
    ...Object.entries(texts).map(([name, text]) => [`With the text $${name}`, text]),
    ...(isCall ? [["Works in the folder of", sessionKey]] : []),
  ];
}

/** Return the elements of rows of names and values. */
export const toRows = (rows) => rows.flatMap(([name, value, className = ""]) => [
  element("dt", className, ...exactText(name), ...lengthNote(value)),
  element("dd", "", element("pre", "", ...exactText(value))),
]);

const textOf = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2) ?? "nothing");

/** Return a note with the length of a value that is too long to be visible at once. */
function lengthNote(value) {
  const text = textOf(value);
  const lines = text.split("\n").length;
  if (lines <= LONG_LINES && text.length <= LONG_CHARACTERS) return [];
  const count = `${lines} ${lines === 1 ? "line" : "lines"}, ${text.length} characters`;
  return [element("p", "faint", `${count}: scroll to see all of it.`)];
}

/** Return the nodes of a value's text, with unsafe characters replaced by their code points. */
export function exactText(value) {
  const text = textOf(value);
  const parts = [];
  let done = 0;
  for (const { 0: character, index } of text.matchAll(UNSAFE_CHARACTER)) {
    if (character === "\n" || character === "\t") continue;
    const code = character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    parts.push(text.slice(done, index), element("span", "odd", `⟨U+${code}⟩`));
    done = index + character.length;
  }
  return [...parts, text.slice(done)];
}
