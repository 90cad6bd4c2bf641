// The tab's end of the subscriptions: a port to the browser's one worker, or to the same module in this page.

const WORKER = "/ui/streams.js";
const NAME = "easel-streams-1"; // another number when tabs and worker no longer understand each other
const HELLO_MS = 5_000;

export class Watching {
  #port = null;
  #name = Array.from(crypto.getRandomValues(new Uint32Array(2)), (part) => part.toString(36)).join("");
  #count = 0;
  #watches = new Map();

  /** `on` has: told(what) from another tab. */
  constructor(on) { this.on = on; }

  async connect() {
    this.#port = (await this.#worker()) ?? (await this.#here());
    this.#port.onmessage = ({ data }) => this.#hear(data);
    // A tab that dies says no goodbye, but lets go of its lock. (Browsers have locks on https and on localhost only.)
    navigator.locks?.request(this.#name, () => {
      this.#port.postMessage({ do: "outlive", lock: this.#name });
      return new Promise(() => {});
    });
    addEventListener("pagehide", () => this.#port.postMessage({ do: "bye" }));
    addEventListener("focus", () => this.#port.postMessage({ do: "look" }));
    document.addEventListener("visibilitychange", () => { if (!document.hidden) this.#port.postMessage({ do: "look" }); });
  }

  /** The shared worker's port once it has said hello; nothing where there is none, or it does not start. */
  async #worker() {
    if (!globalThis.SharedWorker) return null;
    const worker = new SharedWorker(WORKER, { type: "module", name: NAME });
    return new Promise((settle) => {
      worker.onerror = () => settle(null);
      worker.port.onmessage = () => settle(worker.port);
      setTimeout(() => settle(null), HELLO_MS);
    });
  }

  async #here() {
    const { Streams } = await import(WORKER);
    const { port1, port2 } = new MessageChannel();
    new Streams().attach(port2);
    return port1;
  }

  #hear(message) {
    if (message.what === "told") this.on.told(message.told);
    else if (message.what === "broke") reportError(new Error(`In the worker: ${message.says}`));
    else this.#watches.get(message.number)?.(message);
  }

  /** Hear what there is and what comes. The answer is what can be done with it: leave, and for a chat say and stop. */
  watch(kind, id, hear, { wantsInternal = false, isNew = false } = {}) {
    const number = `${this.#name}.${(this.#count += 1)}`;
    const ask = (asked) => this.#port.postMessage({ ...asked, number });
    this.#watches.set(number, hear);
    ask({ do: "watch", kind, id, wantsInternal, isNew });
    return {
      leave: () => { this.#watches.delete(number); ask({ do: "leave" }); },
      say: (text) => ask({ do: "say", text, key: `${number}.${(this.#count += 1)}` }),
      sayAgain: (key) => ask({ do: "say again", key }),
      unsay: (key) => ask({ do: "unsay", key }),
      stop: () => ask({ do: "stop" }),
    };
  }

  tellOthers(told) { this.#port.postMessage({ do: "tell others", told }); }
  tryNow() { this.#port.postMessage({ do: "look" }); }
  signOut() { this.#port?.postMessage({ do: "sign out" }); }
}
