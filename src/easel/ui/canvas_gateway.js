// @ts-check
// The canvas page's connection to the gateway.
//
// Owns the handshake and the pending requests; reconnecting is inherited. Does not know canvases. `on` has:
// state(is), ready() after each handshake, and event(name, payload, seq).

import { RequestRefused, Unreachable } from "./errors.js";
import { Reconnecting } from "./reconnect.js";

const NOT_SIGNED_IN = 401;
const FRAME_TOO_LARGE = 1009; // the code with which the server closes the socket

export class Gateway extends Reconnecting {
  #socket = null;
  #requestCount = 0;
  #pending = new Map(); // by request id
  #waiting = []; // callbacks of live()

  constructor(clientId, on) {
    super();
    this.clientId = clientId;
    this.on = on;
    addEventListener("online", () => this.retryNow());
    addEventListener("focus", () => (this.isLive ? this.probe() : this.retryNow()));
  }

  onState(is) { this.on.state(is); }

  connect(attempt) {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = (this.#socket = new WebSocket(`${scheme}://${location.host}/ws`));
    socket.onopen = () => { if (attempt === this.attempt) this.#handshake(attempt); };
    socket.onmessage = ({ data }) => { if (attempt === this.attempt) this.#receive(JSON.parse(data)); };
    socket.onclose = ({ code, reason }) => {
      if (attempt !== this.attempt) return;
      if (code === FRAME_TOO_LARGE) this.#refuseLargest(reason);
      this.retry();
    };
  }

  ask() { this.call("ping").catch(() => {}); } // the answer counts, not what it says

  /** Refuse the request whose frame was too large: sent again, it would end each new connection. */
  #refuseLargest(message) {
    const [largest] = [...this.#pending.values()].sort((first, second) => second.size - first.size);
    largest?.reject(new RequestRefused({ code: 413, name: "TOO_LARGE", message }));
  }

  disconnect() {
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
    for (const { reject } of this.#pending.values()) reject(new Unreachable());
    this.#pending.clear();
  }

  async #handshake(attempt) {
    const client = { id: this.clientId, version: "1", platform: "web", mode: "client" };
    try {
      await this.call("connect", { minProtocol: 1, maxProtocol: 1, client });
      await this.on.ready();
      if (attempt !== this.attempt) return;
      this.markLive();
      for (const resume of this.#waiting.splice(0)) resume();
    } catch (problem) {
      const isRefused = problem instanceof RequestRefused;
      if (!isRefused && !(problem instanceof Unreachable)) throw problem;
      if (isRefused && problem.code === NOT_SIGNED_IN) this.end("signed-out");
      else if (attempt === this.attempt) this.retry();
    }
  }

  // -- requests

  /** Send a request and return the payload of its response. Rejects with Unreachable without a connection. */
  call(method, params) {
    if (this.#socket?.readyState !== WebSocket.OPEN) {
      if (this.isLive) this.retry(); // the socket is closing: do not wait for its close event
      return Promise.reject(new Unreachable());
    }
    this.#requestCount += 1;
    const id = String(this.#requestCount);
    const frame = JSON.stringify({ type: "req", id, method, params });
    return new Promise((resolve, reject) => {
      this.#pending.set(id, { resolve, reject, size: frame.length });
      this.#socket.send(frame);
    });
  }

  /** Wait for a connection. */
  live() { return this.isLive ? Promise.resolve() : new Promise((resolve) => this.#waiting.push(resolve)); }

  /** Send an idempotent request: wait for a connection, and send it again if the connection breaks. */
  async callWithRetry(method, params) {
    for (;;) {
      await this.live();
      try {
        return await this.call(method, params);
      } catch (problem) {
        if (!(problem instanceof Unreachable)) throw problem;
      }
    }
  }

  #receive(frame) {
    this.noteActivity();
    if (frame.type === "evt") this.on.event(frame.event, frame.payload, frame.seq);
    const request = this.#pending.get(frame.id);
    if (frame.type !== "res" || !request) return;
    this.#pending.delete(frame.id);
    if (frame.ok) request.resolve(frame.payload);
    else request.reject(new RequestRefused(frame.error));
  }
}
