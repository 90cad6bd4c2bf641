// A canvas as it is on the server, followed: read once, then by its events, and read again whenever they say that it has changed.
//
// Owns the cursor and what is known. `on` has: changed(watch, {state, spec, assets, isAnew}), over(why).

import { Refused } from "./canvas_gateway.js";

const PAUSE_MS = 80; // between two readings: of a canvas that changes all the time, each viewer reads twelve states a second
const MOST_OUTPUT = 4_000; // characters of what a running tool says: its last lines, for a page to show
const MOST_SAYING = 20; // executions of which that is kept
const MOST_REPLAYED = 500; // events before the page was opened, for what was said so far by what runs: two minutes of an action that talks all the time
const MOST_RUNNING = 200; // executions at once, as many as one answer has
const RECORDS = 50; // executions of before, so that a page shows what is running and how the last one went

export class CanvasWatch {
  #seq = null;
  #readSeq = 0; // what is up to here was read when the page was opened: of the events before it only output is news
  #telling = null;
  #isReading = false;
  #isStale = false;
  #marks = { spec: 0, assets: 0 }; // at which revision they changed, if that has not been read yet
  #failingSeq = 0; // what is known of the jobs that fail is as new as this
  #latest = new Map(); // by action: its latest execution, {eventId, status, error?, errorName?, at}
  #runs = new Map(); // by eventId: what runs, {actionId, eventId, at}; one action may run several times at once
  #outputs = new Map(); // by eventId: what its tool has said so far
  whole = null;
  failing = new Map(); // by refresh: the jobs that fail, {refreshId, actionId, failures, error?, errorName?, nextAt}
  asked = new Map(); // what waits for a person, by confirmation

  constructor(gateway, canvasId, agentId, on) {
    Object.assign(this, { gateway, canvasId, agentId, on });
  }

  /** After each handshake. What happened meanwhile is told by the events since. */
  async begin() {
    const named = { canvasId: this.canvasId };
    try {
      const whole = await this.#read();
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
    const read = (more) => this.gateway.call("canvas.records", { canvasId: this.canvasId, ...more });
    const [running, last] = [await read({ status: "running", limit: MOST_RUNNING }), await read({ limit: RECORDS })]; // in this order: what has ended in between is told as ended
    this.#latest.clear();
    this.#runs.clear();
    for (const one of [...last.records, ...running.records].reverse()) this.#note(one.actionId, one.eventId, one.status, one.error, one.endedAt ?? one.startedAt);
    const { confirmations } = await this.gateway.call("canvas.confirmations", { canvasId: this.canvasId });
    this.asked = new Map(confirmations.map((one) => [one.confirmationId, one]));
  }

  async #subscribe() {
    const isFirst = this.#seq === null;
    if (isFirst) {
      this.#readSeq = this.whole.descriptor.lastSeq;
      this.#seq = this.#runs.size ? Math.max(0, this.#readSeq - MOST_REPLAYED) : this.#readSeq;
    }
    try {
      await this.gateway.call("canvas.subscribe", { canvasId: this.canvasId, afterSeq: this.#seq });
    } catch (problem) {
      if (problem.name !== "CURSOR_OUT_OF_RANGE") throw problem;
      if (isFirst && problem.details?.oldest > 0) {
        this.#seq = problem.details.oldest - 1; // so much of it is kept
        return this.#subscribe();
      }
      // The log holds our place no longer: what the canvas is now is all there is, and it is read once more.
      const whole = await this.#read();
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
    this.#takeFailing(whole);
    this.on.changed(this, { ...changes, ...what });
  }

  /** The jobs that fail, as a reading of the canvas tells them, unless an event has told something newer. */
  #takeFailing({ failing, descriptor: { lastSeq } }) {
    if (!failing || lastSeq < this.#failingSeq) return;
    this.#failingSeq = lastSeq;
    const isSame = (one, known) => known?.failures === one.failures && known.error === one.error?.message; // then its line stays as it is
    this.failing = new Map(failing.map((one) => [one.refreshId, isSame(one, this.failing.get(one.refreshId)) ? this.failing.get(one.refreshId) : failingOf(one)]));
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
      if (seq <= this.#readSeq) {
        if (name === "canvas.action.output" && this.#runs.has(payload.eventId)) this.#said(payload);
        return;
      }
    }
    if (name === "canvas.updated") this.#updated(payload);
    else if (name === "canvas.action.output") this.#said(payload);
    else if (name.startsWith("canvas.action.")) this.#acted(name.slice("canvas.action.".length), payload);
    else if (name.startsWith("canvas.refresh.")) this.#refreshed(name.slice("canvas.refresh.".length), payload, seq);
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
  async refresh() { this.take(await this.#read()); }

  /** Only this answer tells which jobs fail, if any do; those that tell of a change do not speak of them. */
  async #read() { return { failing: [], ...(await this.gateway.call("canvas.get", { canvasId: this.canvasId })) }; }

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

  /**
   * How each action stands, for its button, by action: {eventId, status, error?, errorName?, at, output?}. It is running as long as one execution of it
   * runs: a button that says "done" while its command goes on would be pressed again. Of several that run the latest is named, and where none
   * does, the one that began last: a person wants to know how their last press went, and not an older one that took longer.
   */
  get statuses() {
    const shown = new Map(this.#latest);
    for (const { actionId, eventId, at } of this.running) shown.set(actionId, { eventId, status: "running", at });
    return Object.fromEntries([...shown].map(([actionId, one]) => [actionId, { ...one, output: this.#outputs.get(one.eventId) }]));
  }

  #said({ eventId, text }) {
    this.#outputs.set(eventId, ((this.#outputs.get(eventId) ?? "") + String(text)).slice(-MOST_OUTPUT));
    if (this.#outputs.size > MOST_SAYING) { // what neither runs nor is shown goes first
      const shown = new Set([...this.#latest.values()].map((one) => one.eventId));
      const isOver = (one) => !this.#runs.has(one) && !shown.has(one);
      this.#outputs.delete([...this.#outputs.keys()].find(isOver) ?? this.#outputs.keys().next().value);
    }
    // All that comes at once is told at once.
    this.#telling ??= setTimeout(() => {
      this.#telling = null;
      this.on.changed(this, {});
    });
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
    if (status === "running") this.#runs.set(eventId, { actionId, eventId, at });
    else this.#runs.delete(eventId);
    if (this.#latest.get(actionId)?.eventId > eventId) return; // of two at once the later one counts
    this.#latest.set(actionId, { eventId, status, error: error?.message, errorName: error?.name, at });
  }

  /** A job that runs by itself has failed again, or works again. */
  #refreshed(what, payload, seq) {
    if (seq <= this.#failingSeq) return; // what was read since knows better
    this.#failingSeq = seq;
    if (what === "failed") this.failing.set(payload.refreshId, failingOf(payload));
    else if (what === "recovered") this.failing.delete(payload.refreshId);
    this.on.changed(this, {});
  }

  #viewed({ viewId, clientId, status }) {
    const others = this.whole.views.filter((view) => view.viewId !== viewId);
    this.whole = { ...this.whole, views: status === "opened" ? [...others, { viewId, clientId }] : others };
    this.on.changed(this, {});
  }

  /** The executions that run, in the order of their beginning: which action, since when, and by which name each can be stopped. */
  get running() { return [...this.#runs.values()].sort((one, other) => (one.eventId < other.eventId ? -1 : 1)); }
}

const failingOf = ({ refreshId, actionId, failures, error, retryInMs }) => ({ refreshId, actionId, failures, error: error?.message, errorName: error?.name, nextAt: Date.now() + retryInMs });
