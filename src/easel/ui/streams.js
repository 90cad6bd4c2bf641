// @ts-check
// All subscriptions of a browser in one SharedWorker, or in the page if there is no SharedWorker. RS-55
//
// Owns which tab subscribes to which stream. Any number of tabs share one connection per thread, run or
// canvas; a tab that subscribes later gets the stored events. Does not know pages: a tab is a port that sends
// commands.

import { ChatLink, EventLink } from "./links.js";

const MAX_EVENT_STREAMS = 4; // a browser opens six connections to a server, and pages need some for requests
const JOIN_MS = 1_000; // deltas closer together than this are stored as one
const FINAL_STATES = new Set(["ended", "missing", "refused", "signed-out"]);

class Stream {
  constructor(kind, streamId, { includeInternal, isNew }, onChange) {
    this.kind = kind;
    this.streamId = streamId;
    this.includeInternal = includeInternal;
    this.isNew = isNew;
    this.onChange = onChange;
    this.subscribers = new Map(); // by subscription id: the port of its tab
    this.lastFocus = 0;
    this.restart();
  }

  restart() {
    this.link?.close();
    this.history = null;
    this.events = [];
    this.state = { is: "connecting" };
    const listener = (message) => this.#receive(message);
    const name = encodeURIComponent(this.streamId);
    /** @type {any} the link of a conversation, or that of events */
    this.link = this.kind === "chat"
      ? new ChatLink(name, this.includeInternal, this.isNew, listener)
      : new EventLink(`/sse/${this.kind}/${name}`, listener);
  }

  get isFinal() { return FINAL_STATES.has(this.state.is); }

  #receive(message) {
    if (message.type === "reset") Object.assign(this, { history: message.history, events: [] });
    if (message.type === "event") this.#store(message.event);
    if (message.type === "state") this.state = message.state;
    this.#post(message);
    if (message.type === "state" || message.type === "outbox") this.onChange(this);
  }

  #post(message) {
    for (const [id, tab] of this.subscribers) tab.postMessage({ ...message, id });
  }

  /** Store an event for later subscribers; deltas are joined and overwritten values dropped. */
  #store(event) {
    const { type, data } = event;
    const last = this.events.at(-1);
    if (last && isContinuation(last, event)) {
      this.events[this.events.length - 1] = { ...event, data: { ...data, text: last.data.text + data.text } };
      return;
    }
    if (type.endsWith("board.write")) {
      const isOverwritten = (old) => (
        old.type === type && old.data.key === data.key && old.data.edge_id === data.edge_id
      );
      this.events = this.events.filter((old) => !isOverwritten(old));
    }
    if (type === "canvas.snapshot") this.events = this.events.filter((old) => old.type !== type);
    this.events.push(event);
  }

  subscribe(id, tab) {
    if (this.isFinal && this.state.is !== "ended") this.restart(); // the thread, run or canvas may exist now
    this.subscribers.set(id, tab);
    const { history, events, state } = this;
    if (events.length || history) tab.postMessage({ id, type: "reset", history, events });
    tab.postMessage({ id, type: "state", state });
    if (this.kind === "chat") tab.postMessage({ id, type: "outbox", outbox: this.link.outbox });
  }

  /** Disconnect and keep the cursor: other streams need the connection. */
  pause() {
    this.link.close();
    this.state = { is: "paused" };
    this.#post({ type: "state", state: this.state });
  }
}

/** Return whether an event continues the text of the one before; a text with references is not joined. */
function isContinuation(last, event) {
  if (!event.type.endsWith(".delta") || last.type !== event.type) return false;
  const isPlain = !event.data.attachments && !last.data.attachments;
  const isSameAttempt = last.data.attempt === event.data.attempt && last.data.try === event.data.try;
  const isSameMessage = last.data.message_id === event.data.message_id && isSameAttempt;
  return isPlain && isSameMessage && Date.parse(event.ts) - Date.parse(last.ts) < JOIN_MS;
}

export class Streams {
  #streams = new Map();
  #tabs = new Set();
  #focusCount = 0;

  constructor() {
    globalThis.addEventListener("online", () => this.#retryNow());
  }

  attach(port) {
    this.#tabs.add(port);
    port.onmessage = ({ data }) => this.#run(port, data);
    port.postMessage({ type: "hello" });
  }

  broadcast(message, except = null) {
    for (const tab of this.#tabs) if (tab !== except) tab.postMessage(message);
  }

  /**
   * @param {any} tab
   * @param {any} request
   */
  #run(tab, { command, id, key, text, topic, lock, ...params }) {
    const stream = [...this.#streams.values()].find((candidate) => candidate.subscribers.has(id));
    switch (command) {
      case "subscribe": return this.#subscribe(tab, id, params);
      case "unsubscribe": return this.#unsubscribe(stream, id);
      case "send": return stream?.link.send(key, text);
      case "resend": return stream?.link.resend(key);
      case "discard": return stream?.link.discard(key);
      case "cancel run": return stream?.link.cancelRun();
      case "focus": return this.#focus(tab);
      case "broadcast": return this.broadcast({ type: "broadcast", topic }, tab);
      case "sign out": return this.#signOut();
      case "watch lock": return void navigator.locks.request(lock, () => this.#closeTab(tab));
      case "close tab": return this.#closeTab(tab);
    }
  }

  #subscribe(tab, id, { kind, streamId, includeInternal = false, isNew = false }) {
    const key = `${kind} ${streamId} ${includeInternal}`;
    const create = () => (
      new Stream(kind, streamId, { includeInternal, isNew }, (changed) => this.#onChange(changed))
    );
    const stream = this.#streams.get(key) ?? create();
    this.#streams.set(key, stream);
    stream.lastFocus = ++this.#focusCount;
    stream.subscribe(id, tab);
    this.#schedule();
  }

  #unsubscribe(stream, id) {
    stream?.subscribers.delete(id);
    this.#removeUnused();
  }

  #closeTab(tab) {
    this.#tabs.delete(tab);
    for (const { subscribers } of this.#streams.values()) {
      for (const [id, port] of subscribers) if (port === tab) subscribers.delete(id);
    }
    this.#removeUnused();
  }

  /** Close the streams that have no subscriber and no unsent message. */
  #removeUnused() {
    for (const [key, stream] of this.#streams) {
      if (stream.subscribers.size || (stream.link.hasUnsent && !stream.isFinal)) continue;
      stream.link.close();
      this.#streams.delete(key);
    }
    this.#schedule();
  }

  #onChange(stream) {
    if (!stream.subscribers.size) this.#removeUnused();
    else if (stream.isFinal) this.#schedule();
  }

  /** Connect all chats and the most recently focused event streams; pause the other event streams. */
  #schedule() {
    const active = [...this.#streams.values()].filter((stream) => !stream.isFinal);
    active.sort((first, second) => second.lastFocus - first.lastFocus);
    const events = active.filter((stream) => stream.kind !== "chat");
    for (const stream of events.slice(MAX_EVENT_STREAMS)) if (stream.state.is !== "paused") stream.pause();
    for (const stream of active) {
      if (stream.kind === "chat" || events.indexOf(stream) < MAX_EVENT_STREAMS) stream.link.open();
    }
  }

  #focus(tab) {
    const focus = ++this.#focusCount;
    for (const stream of this.#streams.values()) {
      if ([...stream.subscribers.values()].includes(tab)) stream.lastFocus = focus;
    }
    this.#schedule();
    this.#retryNow();
  }

  #retryNow() {
    for (const { link } of this.#streams.values()) {
      link.retryNow();
      link.probe();
    }
  }

  #signOut() {
    for (const stream of this.#streams.values()) stream.link.end("signed-out");
  }
}

if ("SharedWorkerGlobalScope" in globalThis) {
  const streams = new Streams();
  globalThis.onconnect = ({ ports }) => streams.attach(ports[0]);
  const report = (problem) => streams.broadcast({ type: "worker error", message: String(problem) });
  globalThis.addEventListener("error", (event) => report(event.message));
  globalThis.addEventListener("unhandledrejection", (event) => report(event.reason?.stack ?? event.reason));
}
