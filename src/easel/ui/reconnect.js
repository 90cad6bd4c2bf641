// @ts-check
// A connection that is opened again after it breaks, with exponential backoff and jitter.
//
// Owns the retry timer, the number of the current attempt and the silence of the server. Does not know what
// is connected: a subclass implements connect(attempt), disconnect(), ask() and onState(state, details), and
// calls noteActivity() when it receives anything. States: connecting, live, slow (live, but the server does
// not answer), waiting (for the next attempt), and any final state passed to end().

const FIRST_WAIT_MS = 300;
const MAX_WAIT_MS = 15_000;
const STABLE_MS = 5_000; // after a connection of this length the backoff starts from the beginning
export const REQUEST_TIMEOUT_MS = 10_000;

// One clock for all connections: a stalled network sends no error. It counts its ticks and not the time, so
// that a computer that slept, or a hidden page with slow timers, is not taken for a silent server.
const TICK_MS = 1_000;
const CONNECT_TICKS = 10; // of silence, after which an attempt to connect has failed
const SOCKET_LIMITS = { ask: 5, slow: 10, lost: 14 }; // ticks of silence: a stall is shown within 15 s
const connections = new Set(); // those that are open
setInterval(() => { for (const connection of [...connections]) connection.tick(); }, TICK_MS);

export class Reconnecting {
  #timer = null;
  #liveSince = null;
  #failures = 0;
  #silence = 0; // ticks
  attempt = 0; // callbacks of an earlier attempt must be ignored
  isLive = false;
  limits = SOCKET_LIMITS;

  // What a subclass implements.
  connect(_attempt) {}
  disconnect() {}
  ask() {}
  onState(_state, _details) {}

  open() {
    if (connections.has(this)) return;
    connections.add(this);
    this.#failures = 0;
    this.onState("connecting");
    this.#connect();
  }

  #connect() {
    clearTimeout(this.#timer);
    this.#timer = null;
    this.#liveSince = null;
    this.#silence = 0;
    this.attempt += 1;
    this.connect(this.attempt);
  }

  /** Disconnect without a further attempt. A cursor is kept, so open() can resume. */
  close() {
    connections.delete(this);
    clearTimeout(this.#timer);
    this.#timer = null;
    this.#drop();
  }

  #drop() {
    this.attempt += 1;
    this.isLive = false;
    this.disconnect();
  }

  /** Close without a further attempt and report the final state. */
  end(state, details) {
    this.close();
    this.onState(state, details);
  }

  markLive() {
    this.#liveSince = Date.now();
    this.isLive = true;
    this.#silence = 0;
    this.onState("live");
  }

  /** Disconnect and schedule the next attempt. Jitter keeps browsers from reconnecting all at once. */
  retry(minWaitMs = 0) {
    if (!connections.has(this)) return;
    this.#drop();
    if (this.#liveSince !== null && Date.now() - this.#liveSince > STABLE_MS) this.#failures = 0;
    const wait = Math.min(MAX_WAIT_MS, FIRST_WAIT_MS * 2 ** this.#failures) * (0.75 + Math.random() / 2);
    this.#failures += 1;
    this.#timer = setTimeout(() => this.#connect(), Math.max(wait, minWaitMs));
    this.onState("waiting");
  }

  /** Retry after the shortest wait: the server is reachable. */
  retrySoon() {
    this.#failures = 0;
    this.retry();
  }

  /** Start a scheduled attempt now. */
  retryNow() {
    if (this.#timer !== null) this.#connect();
  }

  /** The server has sent something. */
  noteActivity() {
    const wasSlow = this.isLive && this.#silence >= this.limits.slow;
    this.#silence = 0;
    if (wasSlow) this.onState("live");
  }

  /** Ask a live connection for an answer without waiting for a silence. */
  probe() {
    if (!this.isLive || this.#silence >= this.limits.ask) return;
    this.#silence = this.limits.ask;
    this.ask();
  }

  tick() {
    if (this.#timer !== null) return; // the next attempt is scheduled
    this.#silence += 1;
    const { ask, slow, lost } = this.limits;
    if (this.#silence >= (this.isLive ? lost : CONNECT_TICKS)) this.retry();
    else if (this.isLive && this.#silence === slow) this.onState("slow");
    else if (this.isLive && this.#silence === ask) this.ask();
  }
}
