// Connections that come back by themselves: the chat's WebSocket and the event streams.
//
// Owns cursors, the wait before another try, and what a refusal means. Knows no tab, and of most events only their number.
// A link tells its `hear` in messages: anew (forget what you have shown), event, state, outbox, problem.
// States: connecting; live; waiting (for the next try); ended (nothing more will come); missing, signed-out, refused (no further try).

const FIRST_WAIT_MS = 400;
const LONGEST_WAIT_MS = 15_000;
const SOLID_MS = 5_000; // a connection that lasted so long was a good one: the next wait is short again
const SILENCE_MS = 50_000; // an event stream says something every 15 s, if only that it is still there
const ANSWER_MS = 10_000; // for a plain question to the server
const HISTORY = 30; // messages of a thread to begin with; a page asks for earlier ones itself

class Link {
  #timer = null;
  #liveSince = null;
  #tries = 0;
  #isWanted = false;
  turn = 0; // counts the tries: whatever an overtaken one still hears is not told
  cursor = null; // the last event that was told; null: begin at the oldest

  constructor(hear) { this.hear = hear; }

  open() {
    if (this.#isWanted) return;
    this.#isWanted = true;
    this.#tries = 0;
    this.tell({ is: "connecting" });
    this.#try();
  }

  /** Hang up and keep the cursor. */
  close() {
    this.#isWanted = false;
    this.turn += 1;
    clearTimeout(this.#timer);
    this.#timer = null;
    this.hangUp();
  }

  /** Somebody looks: wait no longer. */
  hurry() {
    if (this.#timer !== null) this.#try();
  }

  #try() {
    clearTimeout(this.#timer);
    this.#timer = null;
    this.#liveSince = null;
    this.turn += 1;
    this.begin(this.turn);
  }

  tell(state) { this.hear({ what: "state", state }); }

  isLive() {
    this.#liveSince = Date.now();
    this.tell({ is: "live" });
  }

  /** Another try later: each time later still, and not all browsers at once. */
  retry(atLeastMs = 0) {
    if (!this.#isWanted) return;
    this.turn += 1;
    this.hangUp();
    if (this.#liveSince !== null && Date.now() - this.#liveSince > SOLID_MS) this.#tries = 0;
    const wait = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** this.#tries) * (0.75 + Math.random() / 2);
    this.#tries += 1;
    this.#timer = setTimeout(() => this.#try(), Math.max(wait, atLeastMs));
    this.tell({ is: "waiting" });
  }

  /** The server is there: no need to wait long. */
  retrySoon() {
    this.#tries = 0;
    this.retry();
  }

  end(state) {
    this.close();
    this.tell(state);
  }

  async refused(answer, turn) {
    const says = (await answer.json().catch(() => null))?.error?.message ?? `The server answered ${answer.status}.`;
    if (turn !== this.turn) return;
    if (answer.status === 401) this.end({ is: "signed-out" });
    else if (answer.status === 404) this.end({ is: "missing", says });
    else if (answer.status === 429 || answer.status >= 500) this.retry(1000 * Number(answer.headers.get("retry-after") ?? 0));
    else this.end({ is: "refused", says });
  }
}

// --- event streams ----------------------------------------------------------------------------------------------------

/** Server-sent events, read by hand: a browser's own EventSource does not tell why it was refused. */
export class EventLink extends Link {
  #path;
  #stop = null;
  #silence = null;

  constructor(path, hear) {
    super(hear);
    this.#path = path;
  }

  hangUp() {
    clearTimeout(this.#silence);
    this.#stop?.abort();
    this.#stop = null;
  }

  async begin(turn) {
    const stop = (this.#stop = new AbortController());
    this.#expectMore(stop);
    try {
      const place = this.cursor === null ? "" : `?last_event_id=${this.cursor}`;
      const answer = await fetch(this.#path + place, { signal: stop.signal, cache: "no-store" });
      if (turn !== this.turn) return;
      if (answer.status === 204) this.end({ is: "ended" });
      else if (answer.status === 410 && this.cursor !== null) {
        this.cursor = null; // the log holds our place no longer: take what it holds
        this.retrySoon();
      } else if (!answer.ok) await this.refused(answer, turn);
      else {
        if (this.cursor === null) this.hear({ what: "anew", history: null });
        this.isLive();
        await this.#read(answer.body, turn, stop);
      }
    } catch {
      // The wire broke, or was silent for too long.
    }
    if (turn === this.turn) this.retry();
  }

  #expectMore(stop) {
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => stop.abort(), SILENCE_MS);
  }

  async #read(body, turn, stop) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done || turn !== this.turn) return;
      this.#expectMore(stop);
      text += value;
      const frames = text.split("\n\n");
      text = frames.pop();
      for (const frame of frames) {
        const data = frame.split("\n").find((line) => line.startsWith("data: "));
        if (data && turn === this.turn) this.#take(JSON.parse(data.slice("data: ".length)));
      }
    }
  }

  #take(event) {
    if (this.cursor !== null && event.seq <= this.cursor) return;
    this.cursor = event.seq;
    this.hear({ what: "event", event });
    if (event.type === "done") this.end({ is: "ended" });
  }
}

// --- the chat ---------------------------------------------------------------------------------------------------------

/** A thread over its WebSocket. What is to be said goes out one message at a time, each with a key, so that it is stored once. */
export class ChatLink extends Link {
  #thread;
  #wantsInternal;
  #isNew; // nothing was said in it yet, as far as its tab knows: the log alone tells what there is
  #socket = null;
  #isKnown = false; // whether the thread's beginning was told
  #fromOldest = false;
  #refusals = 0;
  outbox = []; // {key, text, is: "waiting" | "sent" | "refused", says?}

  constructor(thread, wantsInternal, isNew, hear) {
    super(hear);
    this.#thread = thread;
    this.#wantsInternal = wantsInternal;
    this.#isNew = isNew;
  }

  hangUp() {
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
    for (const one of this.outbox) if (one.is === "sent") one.is = "waiting"; // nobody has said that it arrived
  }

  async begin(turn) {
    try {
      const start = this.#isKnown ? { history: null, cursor: this.cursor } : await this.#beginning(turn);
      if (start && turn === this.turn) this.#dial(start, turn);
    } catch {
      if (turn === this.turn) this.retry();
    }
  }

  /** The newest messages, whole, and from where on the log tells the rest; nothing where there is no further try. */
  async #beginning(turn) {
    if (this.#isNew) {
      this.#isNew = false; // if that was not so, the next try finds out
      return { history: { messages: [], next: null }, cursor: null };
    }
    const answer = await fetch(`/api/sessions/${this.#thread}/messages?limit=${HISTORY}`, { cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) });
    if (answer.status === 404) return { history: { messages: [], next: null }, cursor: null }; // its first message will make it
    if (!answer.ok) {
      if (turn === this.turn) await this.refused(answer, turn);
      return null;
    }
    const { messages, next = null } = await answer.json();
    // After an answer nothing of its run follows, so whatever comes after it is told from its beginning.
    const finished = next === null || this.#fromOldest ? undefined : messages.find((one) => one.role === "assistant");
    return { history: { messages, next }, cursor: finished?.seq ?? null };
  }

  #dial({ history, cursor }, turn) {
    const address = new URL(`/ws/chat/${this.#thread}`, location.origin);
    address.protocol = address.protocol.replace("http", "ws");
    if (cursor !== null) address.searchParams.set("last_event_id", cursor);
    if (this.#wantsInternal) address.searchParams.set("debug", "1");
    const socket = (this.#socket = new WebSocket(address));
    let wasOpen = false;
    socket.onopen = () => {
      if (turn !== this.turn) return;
      wasOpen = true;
      this.#refusals = 0;
      this.#isKnown = true;
      this.cursor = cursor;
      if (history) this.hear({ what: "anew", history });
      this.isLive();
      this.#sendNext();
    };
    socket.onmessage = ({ data }) => { if (turn === this.turn) this.#take(JSON.parse(data)); };
    socket.onclose = () => {
      if (turn !== this.turn) return;
      if (wasOpen) this.retry();
      else this.#findOut(turn);
    };
  }

  /** A browser does not tell why a WebSocket was refused, so ask. */
  async #findOut(turn) {
    try {
      const answer = await fetch(`/api/sessions/${this.#thread}`, { cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) });
      if (turn !== this.turn) return;
      if (answer.status === 401 || (answer.status === 404 && this.cursor !== null)) {
        await this.refused(answer, turn);
        return;
      }
      // Refused again although the server is there: the thread holds our place no longer. Begin with what it holds.
      this.#refusals += 1;
      if (this.#refusals > 1) [this.#isKnown, this.#fromOldest] = [false, true];
      if (this.#refusals <= 2) this.retrySoon();
    } catch {
      // It cannot be reached.
    }
    if (turn === this.turn) this.retry();
  }

  /** A dead wire says nothing on a WebSocket: ask by another way, and hang up if that is dead too. */
  async check() {
    const turn = this.turn;
    if (this.#socket?.readyState !== WebSocket.OPEN) return;
    await fetch("/healthz", { cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) }).catch(() => { if (turn === this.turn) this.retry(); });
  }

  #take(frame) {
    if (frame.type === "error") {
      this.#refuse(frame.error.message);
    } else if (this.cursor === null || frame.seq > this.cursor) {
      this.cursor = frame.seq;
      this.hear({ what: "event", event: frame });
      if (frame.type === "message.completed" && frame.data.role === "user") this.#arrived(frame.data.text);
    }
  }

  // -- what is to be said

  say(key, text) {
    this.outbox.push({ key, text: text.toWellFormed?.() ?? text, is: "waiting" });
    this.#sendNext();
  }

  sayAgain(key) {
    for (const one of this.outbox) if (one.key === key) [one.is, one.says] = ["waiting", undefined];
    this.#sendNext();
  }

  unsay(key) {
    this.outbox = this.outbox.filter((one) => one.key !== key || one.is === "sent");
    this.#sendNext();
  }

  stop() {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify({ type: "cancel" }));
    else this.hear({ what: "problem", says: "There is no connection to the server, so the run was not stopped." });
  }

  get hasMoreToSay() { return this.outbox.some((one) => one.is !== "refused"); }

  #sendNext() {
    const next = this.outbox.find((one) => one.is !== "refused");
    if (next?.is === "waiting" && this.#socket?.readyState === WebSocket.OPEN) {
      next.is = "sent";
      this.#socket.send(JSON.stringify({ type: "message", text: next.text, idempotency_key: next.key }));
    }
    this.hear({ what: "outbox", outbox: this.outbox });
  }

  /** A message came back as an event of the thread: it is stored, and the next one may go. */
  #arrived(text) {
    const place = this.outbox.findIndex((one) => one.is !== "refused" && (one.text === text || new TextEncoder().encode(one.text).length === text.original_size));
    if (place < 0) return;
    this.outbox.splice(place, 1);
    this.#sendNext();
  }

  #refuse(says) {
    const sent = this.outbox.find((one) => one.is === "sent");
    if (!sent) {
      this.hear({ what: "problem", says });
      return;
    }
    [sent.is, sent.says] = ["refused", says];
    this.#sendNext();
  }
}
