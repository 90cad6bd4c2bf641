// @ts-check
// The shell's end of the bridge to a canvas's page. The page is untrusted: every message from it is checked
// here.
//
// A message is accepted if it comes from the frame, from an opaque origin, with the nonce of this document of
// the frame, within the size and rate limits, and is of a known kind. Other messages are dropped, counted and
// reported. No kind names a tool, and none approves a confirmation. A page can request an action of its spec,
// which the gateway checks, and the stop of a running action, which the shell checks against the actions that
// this page has started. CV-05, RS-59, U5
//
//   page → shell   hello | action {id, actionId, input, isUnsaved} | cancel {id, eventId} | idle | pong
//                  input {id, pointer, value, was, revision} | problem {place, message} | broken {broken}
//   shell → page   welcome {nonce, info, state, revision, statuses, refreshes} | state {…}
//                  leaving | ping | focus | answer {id, ok, payload | error}
//                  resolve {pointer, keep} | link {isLive}

const KINDS = new Set(["hello", "action", "cancel", "input", "problem", "broken", "idle", "pong"]);
const MAX_WEIGHT = 300_000; // characters and values of one message, about its size in bytes
const MAX_DEPTH = 40;
const MAX_BURST = 200; // messages
const MESSAGES_PER_SECOND = 60;
const REPORT_MS = 1_000; // refusals within this time are reported together
const MAX_DETAIL_LENGTH = 100;

export class Bridge {
  #frame = null;
  #nonce = null;
  #budget = MAX_BURST;
  #budgetAt = performance.now();
  #refused = new Map();
  #reportTimer = null;
  receivedCount = 0; // accepted messages
  // Request ids of the actions that this frame's page has started and that may still run.
  startedRequests = new Set();

  /** `on` has a function for each kind, and refused(reason, detail, count). */
  constructor(on) {
    this.on = on;
    addEventListener("message", (event) => this.#receive(event));
  }

  /** Accept messages of this frame only. */
  attach(frame) {
    this.#frame = frame;
    this.#nonce = null;
    this.startedRequests = new Set(); // a new page may have another author: it must not stop earlier actions
  }

  get isGreeted() { return this.#nonce !== null; }

  send(kind, members = {}) {
    if (this.#nonce === null) return;
    // The target is "*" because an opaque origin has no name; our policy restricts what the frame can load.
    this.#frame?.contentWindow?.postMessage({ gsv: 1, nonce: this.#nonce, kind, ...members }, "*");
  }

  answer(id, payload) { this.send("answer", { id, ok: true, payload }); }

  refuse(id, error) { this.send("answer", { id, ok: false, error }); }

  #receive(event) {
    if (this.#frame === null || event.source !== this.#frame.contentWindow || event.origin !== "null") {
      if (event.source !== window) this.drop("source", "");
      return;
    }
    if (!this.#takeFromBudget()) return this.drop("rate", "");
    const { data } = event; // decoded only now, so that a dropped message costs little
    if (!isSmallJson(data)) return this.drop("size", "");
    if (data?.gsv !== 1 || typeof data.kind !== "string") {
      return this.drop("kind", String(data?.kind ?? data?.type ?? data?.method ?? ""));
    }
    if (data.kind === "hello") {
      this.#nonce = crypto.randomUUID();
      this.receivedCount += 1;
      return this.on.hello();
    }
    if (data.nonce !== this.#nonce) return this.drop("nonce", data.kind);
    if (!KINDS.has(data.kind)) {
      this.drop("kind", data.kind);
      const message = "A page can only run the actions of its canvas.";
      if (typeof data.id === "string") this.refuse(data.id, { code: 403, name: "FORBIDDEN", message });
      return;
    }
    this.receivedCount += 1;
    this.on[data.kind](data);
  }

  #takeFromBudget() {
    const now = performance.now();
    this.#budget = Math.min(MAX_BURST, this.#budget + ((now - this.#budgetAt) / 1000) * MESSAGES_PER_SECOND);
    this.#budgetAt = now;
    if (this.#budget < 1) return false;
    this.#budget -= 1;
    return true;
  }

  /** Count a refused message; refusals of the same second are reported together. */
  drop(reason, detail) {
    const { count } = this.#refused.get(reason) ?? { count: 0 };
    this.#refused.set(reason, { count: count + 1, detail: detail.slice(0, MAX_DETAIL_LENGTH) });
    this.#reportTimer ??= setTimeout(() => {
      this.#reportTimer = null;
      const refusals = [...this.#refused];
      this.#refused.clear();
      for (const [name, refusal] of refusals) this.on.refused(name, refusal.detail, refusal.count);
    }, REPORT_MS);
  }
}

/**
 * Return whether a value is plain JSON within the limits. An array counts by its length, also if it is
 * sparse.
 */
function isSmallJson(root) {
  let left = MAX_WEIGHT;
  const stack = [[root, 0]];
  while (stack.length) {
    const [value, depth] = stack.pop();
    left -= 8;
    if (typeof value === "string") left -= value.length;
    else if (typeof value === "object" && value !== null) {
      const isArray = Array.isArray(value);
      const isPlain = isArray || Object.getPrototypeOf(value) === Object.prototype;
      if (depth > MAX_DEPTH || !isPlain) return false;
      if (isArray) left -= value.length;
      if (left < 0) return false;
      for (const [name, inner] of Object.entries(value)) {
        left -= name.length;
        stack.push([inner, depth + 1]);
      }
    } else if (!["number", "boolean", "undefined"].includes(typeof value) && value !== null) return false;
    if (left < 0) return false;
  }
  return true;
}
