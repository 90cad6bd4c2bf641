// The page's end of the bridge to the shell. The page has no sign-in and no network: the bridge is its only
// connection.
//
// Owns the latest state and the pending requests. The shell's end, `canvas_bridge.js`, lists the messages and
// checks them. This bundle runs in a sandboxed page and cannot import the shell's modules.

const MAX_PROBLEMS = 50;

const known = { state: deepFreeze({}), revision: -1, info: null, statuses: {}, refreshes: {} };
const listeners = new Set();
const pending = new Map(); // by request id
const queued = []; // messages to send after the shell's welcome
const reported = new Set();
let nonce = null;
let requestCount = 0;
let afterState = () => {};
let onMessage = () => {};

function send(kind, members = {}) {
  if (nonce === null && kind !== "hello") queued.push([kind, members]);
  // The target can be "*": only our shell may frame this page.
  else if (parent !== window) parent.postMessage({ gsv: 1, nonce, kind, ...members }, "*");
}

/** Send a request and return the promise of its answer. */
function request(kind, members) {
  requestCount += 1;
  const id = `${kind}-${requestCount}`;
  return new Promise((resolve, reject) => {
    pending.set(id, { resolve, reject });
    send(kind, { id, ...members });
  });
}

/** Report a problem to the page's author, each one once. */
function reportProblem(place, message) {
  const key = `${place}\n${message}`;
  if (reported.has(key) || reported.size >= MAX_PROBLEMS) return;
  reported.add(key);
  send("problem", { place: String(place).slice(0, 300), message: String(message).slice(0, 1000) });
}

class RequestRefused extends Error {
  constructor({ message, code, name, details }) {
    super(message);
    Object.assign(this, { code, name, details });
  }
}

function update({ state, revision, info, statuses, refreshes }) {
  if (info) known.info = info;
  if (statuses) {
    Object.assign(known, { statuses, refreshes });
    dispatchStatuses();
  }
  const isNew = state !== undefined && revision >= known.revision;
  if (isNew) Object.assign(known, { state: deepFreeze(state), revision });
  afterState();
  if (isNew) for (const listener of [...listeners]) callListener(listener);
}

/**
 * Dispatch the statuses of actions and failing jobs; again after all scripts have loaded, for late listeners.
 */
function dispatchStatuses() {
  document.dispatchEvent(new CustomEvent("gsv:status", { detail: known.statuses }));
  document.dispatchEvent(new CustomEvent("gsv:refresh", { detail: known.refreshes }));
}
document.addEventListener("DOMContentLoaded", dispatchStatuses);

function callListener(listener) {
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
    update(data);
    for (const [kind, members] of queued.splice(0)) send(kind, members);
  } else if (data.nonce !== nonce) {
    return;
  } else if (data.kind === "state") {
    update(data);
  } else if (data.kind === "answer") {
    const settle = pending.get(data.id);
    pending.delete(data.id);
    if (data.ok) settle?.resolve(data.payload);
    else settle?.reject(new RequestRefused(data.error));
  } else {
    onMessage(data);
  }
});
