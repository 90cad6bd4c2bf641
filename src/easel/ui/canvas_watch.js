// A canvas as it is on the server, followed: read once, then by its events, and read again whenever they say that it has changed.
//
// Owns the cursor and what is known. `on` has: changed(watch, {state, spec, assets, isAnew}), over(why).

import { Refused } from "./canvas_gateway.js";

const PAUSE_MS = 80; // between two readings: of a canvas that changes all the time, each viewer reads twelve states a second
const MOST_OUTPUT = 4_000; // characters of what a running tool says: its last lines, for a page to show
const MOST_SAYING = 20; // actions of which that is kept
const RECORDS = 50; // executions of before, so that a page shows what is running and how the last one went

export class CanvasWatch {
  #seq = null;
  #isReading = false;
  #isStale = false;
  #marks = { spec: 0, assets: 0 }; // at which revision they changed, if that has not been read yet
  whole = null;
  statuses = {}; // by action: {eventId, status, error?, at}
  #outputs = new Map(); // by action: {eventId, text}, of the latest execution that said something
  asked = new Map(); // what waits for a person, by confirmation

  constructor(gateway, canvasId, agentId, on) {
    Object.assign(this, { gateway, canvasId, agentId, on });
  }

  /** After each handshake. What happened meanwhile is told by the events since. */
  async begin() {
    const named = { canvasId: this.canvasId };
    try {
      const whole = await this.gateway.call("canvas.get", named);
      if (whole.descriptor.agentId !== this.agentId) throw new Refused({ code: 404, name: "NOT_FOUND", message: "This canvas belongs to another agent." });
      await this.gateway.call("canvas.open", named);
      await this.#readActions();
      this.take(whole, { isAnew: this.whole === null || whole.revision < this.whole.revision });
      await this.#subscribe();
    } catch (problem) {
      if (problem instanceof Refused && problem.code === 404) this.on.over(problem.message);
      else throw problem;
    }
  }

  async #readActions() {
    const { records } = await this.gateway.call("canvas.records", { canvasId: this.canvasId, limit: RECORDS });
    this.statuses = {};
    for (const one of records.reverse()) this.#note(one.actionId, one.eventId, one.status, one.error, one.endedAt ?? one.startedAt);
    const { confirmations } = await this.gateway.call("canvas.confirmations", { canvasId: this.canvasId });
    this.asked = new Map(confirmations.map((one) => [one.confirmationId, one]));
  }

  async #subscribe() {
    const { lastSeq } = this.whole.descriptor;
    this.#seq ??= lastSeq;
    try {
      await this.gateway.call("canvas.subscribe", { canvasId: this.canvasId, afterSeq: this.#seq });
    } catch (problem) {
      if (problem.name !== "CURSOR_GONE") throw problem;
      // The log holds our place no longer: what the canvas is now is all there is, and it is read once more.
      const whole = await this.gateway.call("canvas.get", { canvasId: this.canvasId });
      await this.#readActions();
      this.#seq = whole.descriptor.lastSeq;
      await this.gateway.call("canvas.subscribe", { canvasId: this.canvasId, afterSeq: this.#seq });
      this.take(whole, { state: true, spec: true, assets: true, isAnew: true });
    }
  }

  /** The canvas as an answer told it, if that is news. */
  take(whole, what = {}) {
    const before = this.whole;
    if (!what.isAnew && before && whole.revision < before.revision) return;
    const changes = { state: !before || whole.revision !== before.revision };
    for (const [name, at] of Object.entries(this.#marks)) {
      changes[name] = at > 0 && at <= whole.revision;
      if (changes[name]) this.#marks[name] = 0;
    }
    this.whole = whole;
    this.on.changed(this, { ...changes, ...what });
  }

  hear(name, payload, seq) {
    if (payload.canvasId !== this.canvasId) return;
    if (name === "canvas.unsubscribed") {
      if (payload.reason === "DELETED") this.on.over("This canvas was deleted.");
      else this.#subscribe().catch(() => {}); // if the connection is gone too, the next one begins anew
      return;
    }
    if (seq !== undefined) {
      if (seq <= this.#seq) return;
      this.#seq = seq;
    }
    if (name === "canvas.updated") this.#updated(payload);
    else if (name === "canvas.action.output") this.#said(payload);
    else if (name.startsWith("canvas.action.")) this.#acted(name.slice("canvas.action.".length), payload);
    else if (name === "canvas.view.updated") this.#viewed(payload);
  }

  #updated({ revision, changedPaths = [] }) {
    for (const path of changedPaths) {
      if (path === "$spec" || path === "$accepted") this.#marks.spec = revision;
      if (path.startsWith("$assets")) this.#marks.assets = revision;
    }
    if (revision > this.whole.revision || this.#marks.spec || this.#marks.assets) this.#readAgain();
  }

  /** At least as new as this revision. */
  async reach(revision) { if (revision > this.whole.revision) await this.refresh(); }

  /** The canvas as it is now, whatever the events have told so far. */
  async refresh() { this.take(await this.gateway.call("canvas.get", { canvasId: this.canvasId })); }

  /** Once at a time: however many changes come meanwhile, the next reading has them all. */
  async #readAgain() {
    this.#isStale = true;
    if (this.#isReading) return;
    this.#isReading = true;
    try {
      while (this.#isStale) {
        this.#isStale = false;
        await this.refresh();
        await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
      }
    } catch {
      // The connection is gone, and the next one begins with a reading; or the canvas is, and an event tells so.
    } finally {
      this.#isReading = false;
    }
  }

  /** What the tool of an action's latest execution has said so far: its last lines. */
  outputOf(actionId) {
    const said = this.#outputs.get(actionId);
    return said && Object.hasOwn(this.statuses, actionId) && this.statuses[actionId].eventId === said.eventId ? said.text : undefined;
  }

  #said({ actionId, eventId, text }) {
    const before = this.#outputs.get(actionId);
    if (before && before.eventId > eventId) return;
    this.#outputs.set(actionId, { eventId, text: ((before?.eventId === eventId ? before.text : "") + String(text)).slice(-MOST_OUTPUT) });
    if (this.#outputs.size > MOST_SAYING) this.#outputs.delete(this.#outputs.keys().next().value);
    this.on.changed(this, {});
  }

  #acted(what, { actionId, eventId, error, endedAt, startedAt, ...more }) {
    const status = { asked: "asked", started: "running", finished: "completed", failed: "failed", refused: "refused" }[what];
    if (!status) return;
    if (status === "asked") this.asked.set(more.confirmationId, { actionId, eventId, ...more });
    else this.asked.delete(eventId);
    this.#note(actionId, eventId, status, error, endedAt ?? startedAt);
    this.on.changed(this, { failed: status === "failed" ? { actionId, error } : undefined });
  }

  #note(actionId, eventId, status, error, at) {
    const now = Object.hasOwn(this.statuses, actionId) ? this.statuses[actionId] : null;
    if (now && now.eventId > eventId) return; // of two at once the later one counts
    Object.defineProperty(this.statuses, actionId, { value: { eventId, status, error: error?.message, at }, enumerable: true, configurable: true, writable: true });
  }

  #viewed({ viewId, clientId, status }) {
    const others = this.whole.views.filter((view) => view.viewId !== viewId);
    this.whole = { ...this.whole, views: status === "opened" ? [...others, { viewId, clientId }] : others };
    this.on.changed(this, {});
  }

  /** The executions that run: which action, and by which name they can be stopped. */
  get stoppable() { return Object.entries(this.statuses).filter(([, { status }]) => status === "running").map(([actionId, { eventId }]) => ({ actionId, eventId })); }

  get running() { return Object.entries(this.statuses).filter(([, { status }]) => status === "running").map(([actionId]) => actionId); }
}
