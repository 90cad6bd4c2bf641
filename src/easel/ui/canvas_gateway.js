// One connection to the gateway, which comes back by itself.
//
// Owns the wait before another try and the questions under way. Knows no canvas. `on` has: state(is), ready() after each handshake, and
// event(name, payload, seq).

const FIRST_WAIT_MS = 300;
const LONGEST_WAIT_MS = 15_000;
const SOLID_MS = 5_000; // a connection that lasted so long was a good one: the next wait is short again
const ANSWER_MS = 10_000; // for a handshake, and for a plain question to see whether the wire is alive
const NOT_SIGNED_IN = 401;

/** There is no connection, or it ended before the answer. */
export class Away extends Error {
  constructor() { super("There is no connection to the server."); }
}

export class Refused extends Error {
  constructor(error) {
    super(error.message);
    Object.assign(this, { code: error.code, name: error.name, details: error.details });
  }

  get told() { return { message: this.message, code: this.code, name: this.name, details: this.details }; }
}

export class Gateway {
  #socket = null;
  #timer = null;
  #tries = 0;
  #liveSince = 0;
  #number = 0;
  #asked = new Map();
  #waiting = [];
  #isOver = false;
  isLive = false;

  constructor(clientId, on) {
    this.clientId = clientId;
    this.on = on;
    addEventListener("online", () => this.hurry());
    addEventListener("focus", () => (this.isLive ? this.#check() : this.hurry()));
  }

  open() {
    this.#timer = null;
    if (this.#isOver) return;
    this.on.state("connecting");
    const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws`);
    this.#socket = socket;
    const patience = setTimeout(() => this.#lost(socket), ANSWER_MS);
    socket.onopen = () => this.#greet(socket, patience);
    socket.onmessage = ({ data }) => this.#take(JSON.parse(data));
    socket.onclose = () => {
      clearTimeout(patience);
      this.#lost(socket);
    };
  }

  async #greet(socket, patience) {
    const client = { id: this.clientId, version: "1", platform: "web", mode: "client" };
    try {
      await this.call("connect", { minProtocol: 1, maxProtocol: 1, client });
      clearTimeout(patience);
      this.#liveSince = Date.now();
      await this.on.ready();
      if (this.#socket !== socket) return;
      this.isLive = true;
      this.on.state("live");
      for (const go of this.#waiting.splice(0)) go();
    } catch (problem) {
      if (problem instanceof Refused && problem.code === NOT_SIGNED_IN) this.end("signed-out");
      else if (!(problem instanceof Refused) && !(problem instanceof Away)) throw problem;
      else this.#lost(socket);
    }
  }

  #lost(socket) {
    if (this.#socket !== socket) return;
    this.#socket = null;
    this.isLive = false;
    socket.close();
    for (const { reject } of this.#asked.values()) reject(new Away());
    this.#asked.clear();
    if (this.#isOver) return;
    if (this.#liveSince && Date.now() - this.#liveSince > SOLID_MS) this.#tries = 0;
    const wait = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** this.#tries) * (0.75 + Math.random() / 2);
    this.#tries += 1;
    this.#timer = setTimeout(() => this.open(), wait);
    this.on.state("waiting");
  }

  /** Somebody looks: wait no longer. */
  hurry() {
    if (this.#timer === null) return;
    clearTimeout(this.#timer);
    this.open();
  }

  /** A dead wire says nothing on a WebSocket: ask by another way, and hang up if that is dead too. */
  async #check() {
    const socket = this.#socket;
    await fetch("/healthz", { cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) }).catch(() => this.#lost(socket));
  }

  end(state) {
    this.#isOver = true;
    const socket = this.#socket;
    if (socket) this.#lost(socket);
    clearTimeout(this.#timer);
    this.on.state(state);
  }

  // -- asking

  call(method, params) {
    if (this.#socket?.readyState !== WebSocket.OPEN) {
      if (this.isLive) this.#lost(this.#socket); // it is closing: whoever insists waits for the next one, and not for ever for this one's end
      return Promise.reject(new Away());
    }
    this.#number += 1;
    const id = String(this.#number);
    return new Promise((resolve, reject) => {
      this.#asked.set(id, { resolve, reject });
      this.#socket.send(JSON.stringify({ type: "req", id, method, params }));
    });
  }

  /** When there is a connection. */
  live() { return this.isLive ? Promise.resolve() : new Promise((resolve) => this.#waiting.push(resolve)); }

  /** As `call`, for what may be asked twice: it waits for a connection, and asks again when it ended in between. */
  async insist(method, params) {
    for (;;) {
      await this.live();
      try {
        return await this.call(method, params);
      } catch (problem) {
        if (!(problem instanceof Away)) throw problem;
      }
    }
  }

  #take(frame) {
    if (frame.type === "evt") this.on.event(frame.event, frame.payload, frame.seq);
    const question = this.#asked.get(frame.id);
    if (frame.type !== "res" || !question) return;
    this.#asked.delete(frame.id);
    if (frame.ok) question.resolve(frame.payload);
    else question.reject(new Refused(frame.error));
  }
}
