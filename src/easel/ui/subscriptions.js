// @ts-check
// A tab's subscriptions: a port to the browser's one SharedWorker, or to the same module in this page.

const WORKER = "/ui/streams.js";
const NAME = "easel-streams-3"; // raise the number when the messages between tab and worker change
const HELLO_MS = 5_000;

export class Subscriptions {
  #port = null;
  #id = Array.from(crypto.getRandomValues(new Uint32Array(2)), (part) => part.toString(36)).join("");
  #count = 0;
  #listeners = new Map(); // by subscription id

  /** `on` has: broadcast(topic), called when another tab has changed something. */
  constructor(on) { this.on = on; }

  async connect() {
    this.#port = (await this.#connectWorker()) ?? (await this.#runInPage());
    this.#port.onmessage = ({ data }) => this.#receive(data);
    // A tab that crashes releases its lock, and the worker waits for that lock. Locks need https or
    // localhost.
    navigator.locks?.request(this.#id, () => {
      this.#port.postMessage({ command: "watch lock", lock: this.#id });
      return new Promise(() => {});
    });
    const focus = () => this.#port.postMessage({ command: "focus" });
    addEventListener("pagehide", () => this.#port.postMessage({ command: "close tab" }));
    addEventListener("focus", focus);
    document.addEventListener("visibilitychange", () => { if (!document.hidden) focus(); });
  }

  /**
   * Return the port of the shared worker after its first message; null if there is none, or it does not
   * start.
   */
  async #connectWorker() {
    if (!globalThis.SharedWorker) return null;
    const worker = new SharedWorker(WORKER, { type: "module", name: NAME });
    return new Promise((settle) => {
      worker.onerror = () => settle(null);
      worker.port.onmessage = () => settle(worker.port);
      setTimeout(() => settle(null), HELLO_MS);
    });
  }

  async #runInPage() {
    const { Streams } = await import(WORKER);
    const { port1, port2 } = new MessageChannel();
    new Streams().attach(port2);
    return port1;
  }

  #receive(message) {
    if (message.type === "broadcast") this.on.broadcast(message.topic);
    else if (message.type === "worker error") reportError(new Error(`In the worker: ${message.message}`));
    else this.#listeners.get(message.id)?.(message);
  }

  /**
   * Pass past and future messages of a stream to `listener`. Returns its commands: close, and those of a
   * chat.
   */
  subscribe(kind, streamId, listener, { includeInternal = false, isNew = false } = {}) {
    const id = `${this.#id}.${(this.#count += 1)}`;
    const post = (command, details = {}) => this.#port.postMessage({ command, id, ...details });
    this.#listeners.set(id, listener);
    post("subscribe", { kind, streamId, includeInternal, isNew });
    return {
      close: () => { this.#listeners.delete(id); post("unsubscribe"); },
      send: (text) => post("send", { text, key: `${id}.${(this.#count += 1)}` }),
      resend: (key) => post("resend", { key }),
      discard: (key) => post("discard", { key }),
      cancelRun: () => post("cancel run"),
    };
  }

  /** Ask the other tabs to reload a topic. */
  broadcast(topic) { this.#port.postMessage({ command: "broadcast", topic }); }
  retryNow() { this.#port.postMessage({ command: "focus" }); }
  signOut() { this.#port?.postMessage({ command: "sign out" }); }
}
