// The page's end of the bridge to the shell around it. The page has no sign-in and no network: this is all it has.
//
// Owns the state as it was last told, and the questions that are not answered yet. Messages: see `canvas_bridge.js`, which is the other
// end, and the one that decides.

const MOST_PROBLEMS = 50;

const known = { state: frozen({}), revision: -1, info: null, statuses: {}, refreshes: {} };
const listeners = new Set();
const asked = new Map();
const early = []; // what is to be said before the shell has answered
const told = new Set();
let nonce = null;
let number = 0;
let afterState = () => {};
let onMessage = () => {};

function say(kind, more = {}) {
  if (nonce === null && kind !== "hello") early.push([kind, more]);
  else if (parent !== window) parent.postMessage({ gsv: 1, nonce, kind, ...more }, "*"); // only our shell may frame this page
}

/** A question, and the promise of its answer. */
function ask(kind, more) {
  number += 1;
  const id = `${kind}-${number}`;
  return new Promise((resolve, reject) => {
    asked.set(id, { resolve, reject });
    say(kind, { id, ...more });
  });
}

/** Something that the page's author will want to know: where, and what. */
function complain(at, says) {
  const key = `${at}\n${says}`;
  if (told.has(key) || told.size >= MOST_PROBLEMS) return;
  told.add(key);
  say("problem", { at: String(at).slice(0, 300), says: String(says).slice(0, 1000) });
}

class Refused extends Error {
  constructor({ message, code, name, details }) {
    super(message);
    Object.assign(this, { code, name, details });
  }
}

function take({ state, revision, info, statuses, refreshes }) {
  if (info) known.info = info;
  if (statuses) {
    Object.assign(known, { statuses, refreshes });
    tellHow();
  }
  const isNew = state !== undefined && revision >= known.revision;
  if (isNew) Object.assign(known, { state: frozen(state), revision });
  afterState();
  if (isNew) for (const listener of [...listeners]) call(listener);
}

/** How the actions stand, and which jobs fail. Once more when all scripts of the page are there: one that came late has missed what came early. */
function tellHow() {
  document.dispatchEvent(new CustomEvent("gsv:status", { detail: known.statuses }));
  document.dispatchEvent(new CustomEvent("gsv:refresh", { detail: known.refreshes }));
}
document.addEventListener("DOMContentLoaded", tellHow);

function call(listener) {
  try {
    listener(known.state);
  } catch (problem) {
    reportError(problem);
  }
}

addEventListener("message", ({ source, data }) => {
  if (source !== parent || data?.gsv !== 1) return;
  if (data.kind === "welcome") {
    nonce = data.nonce;
    take(data);
    for (const [kind, more] of early.splice(0)) say(kind, more);
  } else if (data.nonce !== nonce) {
    return;
  } else if (data.kind === "state") {
    take(data);
  } else if (data.kind === "answer") {
    const question = asked.get(data.id);
    asked.delete(data.id);
    if (data.ok) question?.resolve(data.payload);
    else question?.reject(new Refused(data.error));
  } else {
    onMessage(data);
  }
});
