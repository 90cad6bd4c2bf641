// @ts-check
// Reconnecting subscriptions: the chat's WebSocket and the event streams.
//
// Owns cursors and the reaction to HTTP errors. Does not know tabs; of most events it reads only the sequence
// number. A link calls its `listener` with messages {type}: reset (drop all earlier events), event, state,
// outbox, problem. States: those of `Reconnecting`; ended (the stream is complete); missing, signed-out,
// refused.

import { isTextOf } from "./message_text.js";
import { REQUEST_TIMEOUT_MS, Reconnecting } from "./reconnect.js";

// Ticks of silence of an event stream, which sends a heartbeat every 15 s and cannot be asked.
const STREAM_LIMITS = { ask: Infinity, slow: Infinity, lost: 35 };
const FRAME_TOO_LARGE = 1009; // the code with which the server closes a socket
const MAX_LOSSES = 3; // of connections, while the same message was being sent
const HISTORY_LIMIT = 30; // messages of a thread that are loaded first; the page requests earlier ones itself
/** @returns {RequestInit} */
const requestOptions = () => ({ cache: "no-store", signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS) });

class Link extends Reconnecting {
  cursor = null; // sequence number of the last event that was passed on; null: start at the oldest

  constructor(listener) {
    super();
    this.listener = listener;
  }

  onState(is, details = {}) { this.listener({ type: "state", state: { is, ...details } }); }

  /** Retry, or end the link, as the status of an error response requires. */
  async handleErrorResponse(response, attempt) {
    const error = (await response.json().catch(() => null))?.error;
    const message = error?.message ?? `The server answered ${response.status}.`;
    if (attempt !== this.attempt) return;
    if (response.status === 401) this.end("signed-out");
    else if (response.status === 404) this.end("missing", { message });
    else if (response.status === 429 || response.status >= 500) {
      this.retry(1000 * Number(response.headers.get("retry-after") ?? 0));
    } else this.end("refused", { message });
  }
}

// --- event streams -----------------------------------------------------------------------------------------

/** Server-sent events over fetch: EventSource does not report the status of a refused request. */
export class EventLink extends Link {
  #path;
  #abort = null;
  limits = STREAM_LIMITS;

  constructor(path, listener) {
    super(listener);
    this.#path = path;
  }

  disconnect() {
    this.#abort?.abort();
    this.#abort = null;
  }

  async connect(attempt) {
    const abort = (this.#abort = new AbortController());
    try {
      const query = this.cursor === null ? "" : `?last_event_id=${this.cursor}`;
      const response = await fetch(this.#path + query, { signal: abort.signal, cache: "no-store" });
      if (attempt !== this.attempt) return;
      if (response.status === 204) this.end("ended");
      else if (response.status === 410 && this.cursor !== null) {
        this.cursor = null; // the log no longer has this cursor: start at its oldest event
        this.retrySoon();
      } else if (!response.ok) await this.handleErrorResponse(response, attempt);
      else {
        if (this.cursor === null) this.listener({ type: "reset", history: null });
        this.markLive();
        await this.#read(response.body, attempt);
      }
    } catch {
      // The connection broke, or was silent for too long.
    }
    if (attempt === this.attempt) this.retry();
  }

  probe() {} // its heartbeats show that it works

  async #read(body, attempt) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done || attempt !== this.attempt) return;
      this.noteActivity();
      text += value;
      const frames = text.split("\n\n");
      text = frames.pop();
      for (const frame of frames) {
        if (attempt !== this.attempt) return;
        const lines = frame.split("\n");
        const data = lines.find((line) => line.startsWith("data: "));
        const id = lines.find((line) => line.startsWith("id: "));
        if (data) this.#receive(JSON.parse(data.slice("data: ".length)));
        else if (id) this.cursor = Number(id.slice("id: ".length)); // past events that this stream omits
      }
    }
  }

  #receive(event) {
    if (this.cursor !== null && event.seq <= this.cursor) return;
    this.cursor = event.seq;
    this.listener({ type: "event", event });
    if (event.type === "done") this.end("ended");
  }
}

// --- the chat ----------------------------------------------------------------------------------------------

/**
 * A thread over its WebSocket. Messages are sent one at a time, each with an idempotency key, so each is
 * stored once.
 */
export class ChatLink extends Link {
  #thread;
  #includeInternal;
  #isNew; // the tab knows that the thread has no messages, so they are not requested
  #socket = null;
  #hasHistory = false; // whether the first messages of the thread were passed on
  #fromOldest = false; // whether the log is read from its oldest event
  #refusals = 0;
  outbox = []; // {key, text, is: "waiting" | "sent" | "refused", message?}

  constructor(thread, includeInternal, isNew, listener) {
    super(listener);
    this.#thread = thread;
    this.#includeInternal = includeInternal;
    this.#isNew = isNew;
  }

  disconnect() {
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
    const unacknowledged = this.outbox.find((entry) => entry.is === "sent");
    if (!unacknowledged) return;
    unacknowledged.is = "waiting";
    this.listener({ type: "outbox", outbox: this.outbox });
  }

  async connect(attempt) {
    try {
      const known = { history: null, cursor: this.cursor };
      const start = this.#hasHistory ? known : await this.#loadHistory(attempt);
      if (attempt === this.attempt) this.noteActivity();
      if (start && attempt === this.attempt) this.#openSocket(start, attempt);
    } catch {
      if (attempt === this.attempt) this.retry();
    }
  }

  /** Return the newest messages and the cursor from which the log continues; null after an error response. */
  async #loadHistory(attempt) {
    const nothing = { history: { messages: [], next: null }, cursor: null };
    if (this.#isNew) {
      this.#isNew = false; // only for the first attempt: the thread may exist by the next one
      return nothing;
    }
    const response = await fetch(
      `/api/sessions/${this.#thread}/messages?limit=${HISTORY_LIMIT}`,
      requestOptions(),
    );
    if (response.status === 404) return nothing; // the first message creates the thread
    if (!response.ok) {
      if (attempt === this.attempt) await this.handleErrorResponse(response, attempt);
      return null;
    }
    const { messages, next = null } = await response.json();
    // Start after the first final message: no event of its run follows, so all later runs are complete.
    const isComplete = next === null || this.#fromOldest;
    const finished = isComplete ? undefined : messages.find((message) => message.role === "assistant");
    return { history: { messages, next }, cursor: finished?.seq ?? null };
  }

  #openSocket({ history, cursor }, attempt) {
    const address = new URL(`/ws/chat/${this.#thread}`, location.origin);
    address.protocol = address.protocol.replace("http", "ws");
    if (cursor !== null) address.searchParams.set("last_event_id", cursor);
    if (this.#includeInternal) address.searchParams.set("debug", "1");
    const socket = (this.#socket = new WebSocket(address));
    let wasOpen = false;
    socket.onopen = () => {
      if (attempt !== this.attempt) return;
      wasOpen = true;
      this.#refusals = 0;
      this.#hasHistory = true;
      this.cursor = cursor;
      if (history) this.listener({ type: "reset", history });
      this.markLive();
      this.#sendNext();
    };
    socket.onmessage = ({ data }) => { if (attempt === this.attempt) this.#receive(JSON.parse(data)); };
    socket.onclose = ({ code, reason }) => {
      if (attempt !== this.attempt) return;
      this.#handleLoss(code === FRAME_TOO_LARGE ? reason : null);
      if (wasOpen) this.retry();
      else this.#findRefusalReason(attempt);
    };
  }

  /** Request the session over HTTP: a browser does not report why a WebSocket was refused. */
  async #findRefusalReason(attempt) {
    try {
      const response = await fetch(`/api/sessions/${this.#thread}`, requestOptions());
      if (attempt !== this.attempt) return;
      if (response.status === 401 || (response.status === 404 && this.cursor !== null)) {
        await this.handleErrorResponse(response, attempt);
        return;
      }
      // Refused twice although the server is reachable: the log no longer has this cursor. Start at its
      // oldest event.
      this.#refusals += 1;
      if (this.#refusals > 1) [this.#hasHistory, this.#fromOldest] = [false, true];
      if (this.#refusals <= 2) this.retrySoon();
    } catch {
      // The server is unreachable.
    }
    if (attempt === this.attempt) this.retry();
  }

  /** Refuse a message that ends each connection: it would block all later ones. A reset hides the reason. */
  #handleLoss(reason) {
    const sent = this.outbox.find((entry) => entry.is === "sent");
    if (!sent) return;
    sent.losses = (sent.losses ?? 0) + 1;
    const text = "The connection broke each time this was sent: it may be too long for the server.";
    if (reason || sent.losses >= MAX_LOSSES) this.#markRefused(reason ?? text);
  }

  ask() { this.#socket?.send(JSON.stringify({ type: "ping" })); }

  #receive(frame) {
    this.noteActivity();
    if (frame.type === "pong") return;
    if (frame.type === "error") {
      this.#markRefused(frame.error.message);
    } else if (frame.type === "warnings") {
      console.warn(...frame.warnings);
    } else if (this.cursor === null || frame.seq > this.cursor) {
      this.cursor = frame.seq;
      this.listener({ type: "event", event: frame });
      if (frame.type === "message.completed" && frame.data.role === "user" && !frame.data.hidden) {
        this.#acknowledge(frame.data);
      }
    }
  }

  // -- the outbox

  send(key, text) {
    this.outbox.push({ key, text: text.toWellFormed?.() ?? text, is: "waiting" });
    this.#sendNext();
  }

  resend(key) {
    for (const entry of this.outbox) {
      if (entry.key === key) [entry.is, entry.message, entry.losses] = ["waiting", undefined, 0];
    }
    this.#sendNext();
  }

  discard(key) {
    this.outbox = this.outbox.filter((entry) => entry.key !== key || entry.is === "sent");
    this.#sendNext();
  }

  /** Request that the active run is cancelled. */
  cancelRun() {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify({ type: "cancel" }));
    else {
      const message = "There is no connection to the server, so the run was not stopped.";
      this.listener({ type: "problem", message });
    }
  }

  get hasUnsent() { return this.outbox.some((entry) => entry.is !== "refused"); }

  #sendNext() {
    const next = this.outbox.find((entry) => entry.is !== "refused");
    if (next?.is === "waiting" && this.#socket?.readyState === WebSocket.OPEN) {
      next.is = "sent";
      this.#socket.send(JSON.stringify({ type: "message", text: next.text, idempotency_key: next.key }));
    }
    this.listener({ type: "outbox", outbox: this.outbox });
  }

  /** Remove the entry whose message arrived as an event of the thread, and send the next one. */
  #acknowledge(message) {
    const isIt = (entry) => entry.is !== "refused" && isTextOf(message, entry.text);
    const index = this.outbox.findIndex(isIt);
    if (index < 0) return;
    this.outbox.splice(index, 1);
    this.#sendNext();
  }

  #markRefused(message) {
    const sent = this.outbox.find((entry) => entry.is === "sent");
    if (!sent) {
      this.listener({ type: "problem", message });
      return;
    }
    [sent.is, sent.message] = ["refused", message];
    this.#sendNext();
  }
}
