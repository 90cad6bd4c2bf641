// All subscriptions of a browser, in one place: a SharedWorker, or the page itself where there is none. RS-55
//
// Owns which tab watches what. However many tabs watch a thread, a run or a canvas, it is one connection each; a tab that
// comes later is told what was kept. Knows no page: tabs are ports that say what they want.

import { ChatLink, EventLink } from "./links.js";

const MOST_EVENT_STREAMS = 4; // a browser has six connections to a server, and pages must go on asking
const CHECK_MS = 45_000;
const JOIN_MS = 1_000; // deltas nearer to each other than this are kept as one
const OVER = new Set(["ended", "missing", "refused", "signed-out"]);

class Stream {
  constructor(kind, id, { wantsInternal, isNew }, changed) {
    Object.assign(this, { kind, id, wantsInternal, isNew, changed, watches: new Map(), looked: 0 }); // watches: whose number it is, to its tab
    this.restart();
  }

  restart() {
    this.link?.close();
    Object.assign(this, { history: null, kept: [], state: { is: "connecting" } });
    const hear = (message) => this.#hear(message);
    const name = encodeURIComponent(this.id);
    this.link = this.kind === "chat" ? new ChatLink(name, this.wantsInternal, this.isNew, hear) : new EventLink(`/sse/${this.kind}/${name}`, hear);
  }

  get isOver() { return OVER.has(this.state.is); }

  #hear(message) {
    if (message.what === "anew") Object.assign(this, { history: message.history, kept: [] });
    if (message.what === "event") this.#keep(message.event);
    if (message.what === "state") this.state = message.state;
    for (const [number, tab] of this.watches) tab.postMessage({ ...message, number });
    if (message.what === "state" || message.what === "outbox") this.changed(this);
  }

  /** For who comes later: no more of it than it takes to show the same. */
  #keep(event) {
    const { type, data } = event;
    const last = this.kept.at(-1);
    const isText = (one) => typeof one?.data.text === "string"; // and not the marker of one that was moved
    if (type.endsWith(".delta") && last?.type === type && last.data.message_id === data.message_id && isText(event) && isText(last) && Date.parse(event.ts) - Date.parse(last.ts) < JOIN_MS) {
      this.kept[this.kept.length - 1] = { ...event, data: { ...data, text: last.data.text + data.text } };
      return;
    }
    if (type.endsWith("board.write")) {
      this.kept = this.kept.filter((one) => one.type !== type || one.data.key !== data.key || one.data.edge_id !== data.edge_id);
    }
    if (type === "canvas.snapshot") this.kept = this.kept.filter((one) => one.type !== type);
    this.kept.push(event);
  }

  join(number, tab) {
    if (this.isOver && this.state.is !== "ended") this.restart(); // perhaps it is there by now
    this.watches.set(number, tab);
    if (this.kept.length || this.history) tab.postMessage({ number, what: "anew", history: this.history, events: this.kept });
    tab.postMessage({ number, what: "state", state: this.state });
    if (this.kind === "chat") tab.postMessage({ number, what: "outbox", outbox: this.link.outbox });
  }

  rest() {
    this.link.close();
    this.state = { is: "resting" };
    for (const [number, tab] of this.watches) tab.postMessage({ number, what: "state", state: this.state });
  }
}

export class Streams {
  #streams = new Map();
  #tabs = new Set();
  #looks = 0;

  constructor() {
    setInterval(() => { for (const stream of this.#streams.values()) stream.link.check?.(); }, CHECK_MS);
    globalThis.addEventListener("online", () => this.#hurry());
  }

  attach(port) {
    this.#tabs.add(port);
    port.onmessage = ({ data }) => this.#do(port, data);
    port.postMessage({ what: "hello" });
  }

  tellAll(message, except = null) {
    for (const tab of this.#tabs) if (tab !== except) tab.postMessage(message);
  }

  #do(tab, asked) {
    const stream = [...this.#streams.values()].find((one) => one.watches.has(asked.number));
    switch (asked.do) {
      case "watch": return this.#watch(tab, asked);
      case "leave": return this.#leave(stream, asked.number);
      case "say": return stream?.link.say(asked.key, asked.text);
      case "say again": return stream?.link.sayAgain(asked.key);
      case "unsay": return stream?.link.unsay(asked.key);
      case "stop": return stream?.link.stop();
      case "look": return this.#look(tab);
      case "tell others": return this.tellAll({ what: "told", told: asked.told }, tab);
      case "sign out": return this.#signOut();
      case "outlive": return void navigator.locks.request(asked.lock, () => this.#gone(tab));
      case "bye": return this.#gone(tab);
    }
  }

  #watch(tab, { number, kind, id, wantsInternal = false, isNew = false }) {
    const key = `${kind} ${id} ${wantsInternal}`;
    const stream = this.#streams.get(key) ?? new Stream(kind, id, { wantsInternal, isNew }, (changed) => this.#changed(changed));
    this.#streams.set(key, stream);
    stream.looked = ++this.#looks;
    stream.join(number, tab);
    this.#schedule();
  }

  #leave(stream, number) {
    stream?.watches.delete(number);
    this.#sweep();
  }

  #gone(tab) {
    this.#tabs.delete(tab);
    for (const stream of this.#streams.values()) {
      for (const [number, port] of stream.watches) if (port === tab) stream.watches.delete(number);
    }
    this.#sweep();
  }

  /** Hang up where nobody watches any more and nothing is left to be said. */
  #sweep() {
    for (const [key, stream] of this.#streams) {
      if (stream.watches.size || (stream.link.hasMoreToSay && !stream.isOver)) continue;
      stream.link.close();
      this.#streams.delete(key);
    }
    this.#schedule();
  }

  #changed(stream) {
    if (!stream.watches.size) this.#sweep();
    else if (stream.isOver) this.#schedule();
  }

  /** Chats are always connected. Of the event streams, those that were looked at last; the others rest and keep their cursors. */
  #schedule() {
    const open = [...this.#streams.values()].filter((one) => !one.isOver).sort((one, other) => other.looked - one.looked);
    const events = open.filter((one) => one.kind !== "chat");
    for (const stream of events.slice(MOST_EVENT_STREAMS)) if (stream.state.is !== "resting") stream.rest();
    for (const stream of open) if (stream.kind === "chat" || events.indexOf(stream) < MOST_EVENT_STREAMS) stream.link.open();
  }

  #look(tab) {
    const looks = ++this.#looks;
    for (const stream of this.#streams.values()) if ([...stream.watches.values()].includes(tab)) stream.looked = looks;
    this.#schedule();
    this.#hurry();
  }

  #hurry() {
    for (const stream of this.#streams.values()) {
      stream.link.hurry();
      stream.link.check?.();
    }
  }

  #signOut() {
    for (const stream of this.#streams.values()) stream.link.end({ is: "signed-out" });
  }
}

if ("SharedWorkerGlobalScope" in globalThis) {
  const streams = new Streams();
  globalThis.onconnect = ({ ports }) => streams.attach(ports[0]);
  const broke = (problem) => streams.tellAll({ what: "broke", says: String(problem) });
  globalThis.addEventListener("error", (event) => broke(event.message));
  globalThis.addEventListener("unhandledrejection", (event) => broke(event.reason?.stack ?? event.reason));
}
