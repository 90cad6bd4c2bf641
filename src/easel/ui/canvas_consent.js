// What a person is asked before an action runs: exactly the call that will run, and nothing that looks like it.
//
// The page of the canvas has no part in this: it cannot draw over it, press it, or put a press under a finger that was meant for
// something else. Text is shown as text, and signs that hide or turn others around are shown by their numbers.

import { at, element } from "./values.js";

const REST_MS = 3_000; // after a refusal nothing is put before a person's eyes for so long: it waits in its line
export const PAUSE_MS = 700; // a press that was on its way to something else does not count
const NEARLY_PX = 4; // of a scroll to the end
const SHOWN_LINES = 12; // of one value
const SHOWN_LENGTH = 500; // characters
const ODD = /[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu;

export class Consent {
  #queue = [];
  #shown = null;
  #pause = null;
  #refusedAt = -Infinity;
  #isRested = false; // whether the question was there long enough
  #isSeen = false; // whether all of it was in sight
  #from = null; // where the person was before the first of the questions

  /** `on` has: closed(from) when no question is left, so that a person goes on where they were. */
  constructor(on) {
    this.on = on;
    at("consent-approve").onclick = () => this.#decide("approve");
    at("consent-refuse").onclick = () => this.#decide("refuse");
    at("consent-later").onclick = () => this.#decide("later");
    at("consent").oncancel = (event) => {
      event.preventDefault();
      this.#decide("later");
    };
    at("consent").onscroll = () => this.#look();
    addEventListener("resize", () => this.#look());
    // After one Escape a browser closes the next dialog without asking. What it tells of late may be about the one before.
    at("consent").onclose = () => { if (!at("consent").open) this.#decide("later"); };
  }

  /** Whether a page may put something before the person's eyes now; whatever it may not waits until it is looked at. */
  get isOpen() { return !this.#queue.length && performance.now() - this.#refusedAt > REST_MS; }

  /** `approve`, `refuse` or `later`; what was answered elsewhere meanwhile is `later` too. */
  ask({ confirmationId, title, why, resolved, from = null }) {
    return new Promise((resolve) => {
      this.#queue.push({ confirmationId, title, why, resolved, from, resolve });
      this.#next();
    });
  }

  withdraw(confirmationId) {
    if (this.#shown?.confirmationId === confirmationId) this.#decide("later");
    for (const one of this.#queue.filter((other) => other.confirmationId === confirmationId)) one.resolve("later");
    this.#queue = this.#queue.filter((one) => one.confirmationId !== confirmationId);
  }

  #next() {
    if (this.#shown || !this.#queue.length) return;
    this.#shown = this.#queue.shift();
    const { title, why, resolved, from } = this.#shown;
    this.#from ??= from ?? document.activeElement; // while it is open a frame is inert, and forgets what was focused in it
    at("consent-title").textContent = `Run “${title}”?`;
    at("consent-why").textContent = why;
    at("consent-call").replaceChildren(...called(resolved));
    at("consent-approve").disabled = true;
    at("consent").showModal();
    at("consent-refuse").focus({ preventScroll: true }); // what is asked comes into sight first
    at("consent").scrollTop = 0;
    this.#isRested = this.#isSeen = false;
    this.#look();
    this.#pause = setTimeout(() => {
      this.#isRested = true;
      this.#look();
    }, PAUSE_MS);
  }

  /** The answers are always in sight, and what is asked may be longer: nobody agrees to a part of it that they have not seen. */
  #look() {
    if (!this.#shown) return;
    const { scrollTop, clientHeight, scrollHeight } = at("consent");
    this.#isSeen ||= scrollTop + clientHeight >= scrollHeight - NEARLY_PX;
    at("consent-more").hidden = this.#isSeen;
    if (this.#isSeen && this.#isRested) at("consent-approve").disabled = false;
  }

  #decide(how) {
    const shown = this.#shown;
    if (!shown) return;
    this.#shown = null;
    clearTimeout(this.#pause); // the next question has a pause of its own
    at("consent").close();
    shown.resolve(how);
    if (how !== "approve") {
      this.#refusedAt = performance.now();
      for (const one of this.#queue.splice(0)) one.resolve("later");
    }
    this.#next();
    if (this.#shown) return;
    const from = this.#from;
    this.#from = null;
    this.on.closed(from);
  }
}

/** A resolved call, all of it. */
export function called({ kind, tool, args, sessionKey, message, patch, saveAs, ...rest }) {
  const kept = saveAs ? [["Keeps its result as", saveAs]] : [];
  const rows = {
    "tool.call": [["Tool", tool], ...Object.entries(args ?? {}), ["Works in the folder of", sessionKey], ...kept],
    "session.send": [["To the session", sessionKey], ["Message", message], ...kept],
    "state.patch": [["Changes the state", patch]],
  }[kind] ?? Object.entries({ kind, tool, args, sessionKey, message, patch, saveAs, ...rest });
  return rows.flatMap(([name, value]) => [element("dt", "", ...exact(name), ...howLong(value)), element("dd", "", element("pre", "", ...exact(value)))]);
}

const textOf = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2) ?? "nothing");

/** Of what is not in sight at once: that there is more, and how much. */
function howLong(value) {
  const text = textOf(value);
  const lines = text.split("\n").length;
  const isLong = lines > SHOWN_LINES || text.length > SHOWN_LENGTH;
  return isLong ? [element("p", "faint", `${lines} ${lines === 1 ? "line" : "lines"}, ${text.length} characters: scroll to see all of it.`)] : [];
}

/** Text as it is; whatever is no plain sign stands there by its number. */
export function exact(value) {
  const text = textOf(value);
  const parts = [];
  let done = 0;
  for (const { 0: sign, index } of text.matchAll(ODD)) {
    if (sign === "\n" || sign === "\t") continue;
    parts.push(text.slice(done, index), element("span", "odd", `⟨U+${sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`));
    done = index + sign.length;
  }
  return [...parts, text.slice(done)];
}
