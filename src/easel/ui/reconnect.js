// A connection that is opened again after it breaks, with exponential backoff and jitter.
//
// Owns the retry timer and the number of the current attempt. Does not know what is connected: a subclass
// implements connect(attempt), disconnect() and onState(state, details). States: connecting, live, waiting
// (for the next attempt), and any final state passed to end().

const FIRST_WAIT_MS = 300;
const MAX_WAIT_MS = 15_000;
const STABLE_MS = 5_000; // after a connection of this length the backoff starts from the beginning
export const REQUEST_TIMEOUT_MS = 10_000;

export class Reconnecting {
  #timer = null;
  #liveSince = null;
  #failures = 0;
  #isOpen = false;
  attempt = 0; // callbacks of an earlier attempt must be ignored
  isLive = false;

  open() {
    if (this.#isOpen) return;
    this.#isOpen = true;
    this.#failures = 0;
    this.onState("connecting");
    this.#connect();
  }

  #connect() {
    clearTimeout(this.#timer);
    this.#timer = null;
    this.#liveSince = null;
    this.attempt += 1;
    this.connect(this.attempt);
  }

  /** Disconnect without a further attempt. A cursor is kept, so open() can resume. */
  close() {
    this.#isOpen = false;
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
    this.onState("live");
  }

  /** Disconnect and schedule the next attempt. Jitter keeps browsers from reconnecting all at once. */
  retry(minWaitMs = 0) {
    if (!this.#isOpen) return;
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

  /** Request /healthz and reconnect if it fails: a WebSocket does not detect a broken network. */
  async probe() {
    const { attempt } = this;
    if (!this.isLive) return;
    const options = { cache: "no-store", signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS) };
    await fetch("/healthz", options).catch(() => {
      if (attempt === this.attempt) this.retry();
    });
  }
}
