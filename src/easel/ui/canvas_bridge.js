// The shell's end of the bridge to a canvas's page, and the border between the two: whatever comes from there is a stranger's.
//
// A message counts if it comes from the frame itself, from an opaque origin, with the nonce that this document of the frame was given, is not too large,
// does not come too fast and is one of the kinds below. Everything else is dropped, counted and reported. No kind names a tool, and
// none answers a question: a page can ask for actions of its spec, and the gateway decides about those; it can ask to stop what runs, and
// the shell decides about that, by what this very page has pressed. CV-05, RS-59, U5
//
//   page → shell   hello | action {id, actionId, input, isUnsaved} | cancel {id, eventId} | input {id, pointer, value, was} | problem {at, says} | broken {broken} | idle | here
//   shell → page   welcome {nonce, info, state, revision, statuses, refreshes} | state {…} | answer {id, ok, payload | error} | resolve {pointer, keep} | link {isLive} | focus | leaving | knock

const KINDS = new Set(["hello", "action", "cancel", "input", "problem", "broken", "idle", "here"]);
const MOST_WEIGHT = 300_000; // characters and values of one message, roughly its bytes
const DEEPEST = 40;
const BURST = 200; // messages at once
const PER_SECOND = 60;
const REPORT_MS = 1_000; // refusals of so long are told together
const SHOWN = 100; // characters of what was refused

export class Bridge {
  #frame = null;
  #nonce = null;
  #left = BURST;
  #at = performance.now();
  #refused = new Map();
  #timer = null;
  heard = 0; // messages that counted
  pressed = new Set(); // requestIds of what this frame's page has pressed, and what may run yet

  /** `on` has a function for each kind, and refused(what, detail, count). */
  constructor(on) {
    this.on = on;
    addEventListener("message", (event) => this.#hear(event));
  }

  /** From now on this frame is the one that counts; nothing of another is heard any more. */
  attach(frame) {
    this.#frame = frame;
    this.#nonce = null;
    this.pressed = new Set(); // another page takes nothing over: it may be another author's
  }

  get isGreeted() { return this.#nonce !== null; }

  say(kind, more = {}) {
    if (this.#nonce === null) return;
    // An opaque origin has no name to send to; where the frame can be is pinned by our policy.
    this.#frame?.contentWindow?.postMessage({ gsv: 1, nonce: this.#nonce, kind, ...more }, "*");
  }

  answer(id, payload) { this.say("answer", { id, ok: true, payload }); }

  refuse(id, error) { this.say("answer", { id, ok: false, error }); }

  #hear(event) {
    if (this.#frame === null || event.source !== this.#frame.contentWindow || event.origin !== "null") {
      if (event.source !== window) this.drop("source", "");
      return;
    }
    if (!this.#hasRoom()) return this.drop("rate", "");
    const { data } = event; // read only now: what is dropped before costs next to nothing
    if (!isLight(data)) return this.drop("size", "");
    if (data?.gsv !== 1 || typeof data.kind !== "string") return this.drop("kind", String(data?.kind ?? data?.type ?? data?.method ?? ""));
    if (data.kind === "hello") {
      this.#nonce = crypto.randomUUID();
      this.heard += 1;
      return this.on.hello();
    }
    if (data.nonce !== this.#nonce) return this.drop("nonce", data.kind);
    if (!KINDS.has(data.kind)) {
      this.drop("kind", data.kind);
      if (typeof data.id === "string") this.refuse(data.id, { code: 403, name: "FORBIDDEN", message: "A page can run the actions of its canvas, and nothing else." });
      return;
    }
    this.heard += 1;
    this.on[data.kind](data);
  }

  #hasRoom() {
    const now = performance.now();
    this.#left = Math.min(BURST, this.#left + ((now - this.#at) / 1000) * PER_SECOND);
    this.#at = now;
    if (this.#left < 1) return false;
    this.#left -= 1;
    return true;
  }

  /** What is refused is counted, and told together with what else is refused in the same moment. */
  drop(what, detail) {
    const { count } = this.#refused.get(what) ?? { count: 0 };
    this.#refused.set(what, { count: count + 1, detail: detail.slice(0, SHOWN) });
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      const told = [...this.#refused];
      this.#refused.clear();
      for (const [name, one] of told) this.on.refused(name, one.detail, one.count);
    }, REPORT_MS);
  }
}

/** Plain JSON, not too much of it and not too deep. An array counts by its length, however little is in it. */
function isLight(value) {
  let left = MOST_WEIGHT;
  const stack = [[value, 0]];
  while (stack.length) {
    const [one, depth] = stack.pop();
    left -= 8;
    if (typeof one === "string") left -= one.length;
    else if (typeof one === "object" && one !== null) {
      const isArray = Array.isArray(one);
      if (depth > DEEPEST || (!isArray && Object.getPrototypeOf(one) !== Object.prototype)) return false;
      if (isArray) left -= one.length;
      if (left < 0) return false;
      for (const [name, inner] of Object.entries(one)) {
        left -= name.length;
        stack.push([inner, depth + 1]);
      }
    } else if (!["number", "boolean", "undefined"].includes(typeof one) && one !== null) return false;
    if (left < 0) return false;
  }
  return true;
}
