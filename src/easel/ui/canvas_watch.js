// @ts-check
// A copy of a canvas of the server: read once, updated by events, and read again after changes.
//
// Owns the cursor and the copy. `on` has: changed({state, spec, assets, isReset, failed}), over(reason).

import { RequestRefused } from "./errors.js";

const PAUSE_MS = 80; // between two reads, so that a busy canvas is read at most twelve times a second
const MAX_OUTPUT_LENGTH = 4_000; // characters of a running tool's output that a page gets: its end
const MAX_OUTPUTS = 20; // executions whose output is stored
// Events before the page was opened that are read for the output of running executions.
const MAX_REPLAYED = 500;
const MAX_RUNNING = 200; // executions, the limit of one response
const RECORD_LIMIT = 50; // past executions that are read for the status of each action

const ACTION = "canvas.action.";
const REFRESH = "canvas.refresh.";

export class CanvasWatch {
  #seq = null;
  #readSeq = 0; // sequence number of the first snapshot; earlier events are replayed for output only
  #changeTimer = null;
  #isReading = false;
  #isStale = false;
  #marks = { spec: 0, assets: 0 }; // revision of a change that was not read yet; 0: none
  #failingSeq = 0; // sequence number up to which the failing jobs are known
  #latest = new Map(); // by action: its latest execution, {eventId, status, error?, errorName?, at}
  #running = new Map(); // by eventId: {actionId, eventId, at}; an action may run several times at once
  #outputs = new Map(); // by eventId: the output of its tool so far
  snapshot = null;
  // By refresh id: the failing jobs, {refreshId, actionId, failures, error?, errorName?, nextAt}.
  failing = new Map();
  confirmations = new Map(); // pending, by confirmation id

  constructor(gateway, canvasId, agentId, on) {
    this.gateway = gateway;
    this.canvasId = canvasId;
    this.agentId = agentId;
    this.on = on;
  }

  #call(method, params = {}) { return this.gateway.call(method, { canvasId: this.canvasId, ...params }); }

  /** Read the canvas and subscribe to it after each handshake. Missed changes arrive as events. */
  async start() {
    try {
      const snapshot = await this.#read();
      if (snapshot.descriptor.agentId !== this.agentId) {
        const message = "This canvas belongs to another agent.";
        throw new RequestRefused({ code: 404, name: "NOT_FOUND", message });
      }
      await this.#readActions();
      const isReset = this.snapshot === null || snapshot.revision < this.snapshot.revision;
      this.update(snapshot, { isReset });
      await this.#subscribe();
      await this.#call("canvas.open"); // last: a view without a subscription gets events too
    } catch (problem) {
      if (problem instanceof RequestRefused && problem.code === 404) this.on.over(problem.message);
      else throw problem;
    }
  }

  async #readActions() {
    // In this order: an execution that ends between the two reads is in the second read as ended.
    const running = await this.#call("canvas.records", { status: "running", limit: MAX_RUNNING });
    const latest = await this.#call("canvas.records", { limit: RECORD_LIMIT });
    this.#latest.clear();
    this.#running.clear();
    for (const record of [...latest.records, ...running.records].reverse()) {
      const { actionId, eventId, status, error, endedAt, startedAt } = record;
      this.#setStatus(actionId, eventId, status, error, endedAt ?? startedAt);
    }
    const { confirmations } = await this.#call("canvas.confirmations");
    this.confirmations = new Map(confirmations.map((item) => [item.confirmationId, item]));
  }

  async #subscribe() {
    const isFirst = this.#seq === null;
    if (isFirst) {
      this.#readSeq = this.snapshot.descriptor.lastSeq;
      this.#seq = this.#running.size ? Math.max(0, this.#readSeq - MAX_REPLAYED) : this.#readSeq;
    }
    try {
      await this.#call("canvas.subscribe", { afterSeq: this.#seq });
    } catch (problem) {
      if (problem.name !== "CURSOR_OUT_OF_RANGE") throw problem;
      if (isFirst && problem.details?.oldest > 0) {
        this.#seq = problem.details.oldest - 1;
        return this.#subscribe();
      }
      // The log no longer has this cursor: read the canvas again and continue from there.
      const snapshot = await this.#read();
      await this.#readActions();
      this.#seq = snapshot.descriptor.lastSeq;
      await this.#call("canvas.subscribe", { afterSeq: this.#seq });
      this.update(snapshot, { state: true, spec: true, assets: true, isReset: true });
    }
  }

  /** Replace the copy with a snapshot from a response, unless the copy is newer. */
  update(snapshot, changes = {}) {
    const before = this.snapshot;
    if (!changes.isReset && before && snapshot.revision < before.revision) return;
    const detected = { state: !before || snapshot.revision !== before.revision };
    for (const [name, revision] of Object.entries(this.#marks)) {
      detected[name] = revision > 0 && revision <= snapshot.revision;
      if (detected[name]) this.#marks[name] = 0;
    }
    this.snapshot = snapshot;
    this.#updateFailing(snapshot);
    this.on.changed({ ...detected, ...changes });
  }

  /**
   * Take the failing jobs from a snapshot, unless an event was newer. An unchanged job keeps its countdown.
   */
  #updateFailing({ failing, descriptor: { lastSeq } }) {
    if (!failing || lastSeq < this.#failingSeq) return;
    this.#failingSeq = lastSeq;
    const isSame = (job, old) => old?.failures === job.failures && old.error === job.error?.message;
    this.failing = new Map(failing.map((job) => {
      const old = this.failing.get(job.refreshId);
      return [job.refreshId, isSame(job, old) ? old : failingJob(job)];
    }));
  }

  handleEvent(name, payload, seq) {
    if (payload.canvasId !== this.canvasId) return;
    if (name === "canvas.unsubscribed") {
      if (payload.reason === "DELETED") this.on.over("This canvas was deleted.");
      else this.#subscribe().catch(() => {}); // if the connection broke, the next one subscribes
      return;
    }
    if (seq !== undefined) {
      if (seq <= this.#seq) return;
      this.#seq = seq;
      if (seq <= this.#readSeq) {
        if (name === "canvas.action.output" && this.#running.has(payload.eventId)) this.#addOutput(payload);
        return;
      }
    }
    if (name === "canvas.updated") this.#handleUpdate(payload);
    else if (name === "canvas.action.output") this.#addOutput(payload);
    else if (name.startsWith(ACTION)) this.#handleAction(name.slice(ACTION.length), payload);
    else if (name.startsWith(REFRESH)) this.#handleRefresh(name.slice(REFRESH.length), payload, seq);
    else if (name === "canvas.view.updated") this.#handleView(payload);
  }

  #handleUpdate({ revision, changedPaths = [] }) {
    for (const path of changedPaths) {
      if (["$spec", "$session", "$accepted"].includes(path)) this.#marks.spec = revision;
      if (path.startsWith("$assets")) this.#marks.assets = revision;
    }
    if (revision > this.snapshot.revision || this.#marks.spec || this.#marks.assets) this.#readAgain();
  }

  /** Read the canvas if the copy is older than this revision. */
  async reach(revision) { if (revision > this.snapshot.revision) await this.refresh(); }

  async refresh() { this.update(await this.#read()); }

  /** Read the canvas. Only canvas.get lists failing jobs; it has no member `failing` if no job fails. */
  async #read() { return { failing: [], ...(await this.#call("canvas.get")) }; }

  /** Read the canvas, one read at a time. All changes during a read are in the next one. */
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
      // The connection broke, and the next one reads the canvas; or the canvas was deleted, which an event
      // reports.
    } finally {
      this.#isReading = false;
    }
  }

  /**
   * The status of each action, {eventId, status, error?, errorName?, at, output?}. An action is running as
   * long as one of its executions runs, so that its button does not show "done" too early. Otherwise the
   * execution that started last counts.
   */
  get statuses() {
    const statuses = new Map(this.#latest);
    for (const { actionId, eventId, at } of this.running) {
      statuses.set(actionId, { eventId, status: "running", at });
    }
    return Object.fromEntries([...statuses].map(
      ([actionId, status]) => [actionId, { ...status, output: this.#outputs.get(status.eventId) }],
    ));
  }

  #addOutput({ eventId, text }) {
    const output = (this.#outputs.get(eventId) ?? "") + String(text);
    this.#outputs.set(eventId, output.slice(-MAX_OUTPUT_LENGTH));
    if (this.#outputs.size > MAX_OUTPUTS) this.#evictOutput();
    // Output events that arrive together are shown together.
    this.#changeTimer ??= setTimeout(() => {
      this.#changeTimer = null;
      this.on.changed({});
    });
  }

  /** Drop the output of an execution that neither runs nor is shown; otherwise the oldest. */
  #evictOutput() {
    const shown = new Set([...this.#latest.values()].map((execution) => execution.eventId));
    const isUnused = (eventId) => !this.#running.has(eventId) && !shown.has(eventId);
    this.#outputs.delete([...this.#outputs.keys()].find(isUnused) ?? this.#outputs.keys().next().value);
  }

  #handleAction(type, { actionId, eventId, error, endedAt, startedAt, ...rest }) {
    const status = {
      asked: "asked", started: "running", finished: "completed", failed: "failed", refused: "refused",
    }[type];
    if (!status) return;
    if (status === "asked") {
      this.confirmations.set(rest.confirmationId, { actionId, eventId, ...rest });
      if (this.snapshot.accepted) this.#readAgain(); // a tool may claim less than before; then it is not
    } else this.confirmations.delete(eventId);
    this.#setStatus(actionId, eventId, status, error, endedAt ?? startedAt);
    this.on.changed({ failed: status === "failed" ? { actionId, error } : undefined });
  }

  #setStatus(actionId, eventId, status, error, at) {
    if (status === "running") this.#running.set(eventId, { actionId, eventId, at });
    else this.#running.delete(eventId);
    if (this.#latest.get(actionId)?.eventId > eventId) return; // a later execution is known
    this.#latest.set(actionId, { eventId, status, error: error?.message, errorName: error?.name, at });
  }

  #handleRefresh(type, payload, seq) {
    if (seq <= this.#failingSeq) return; // the last read is newer
    this.#failingSeq = seq;
    if (type === "failed") this.failing.set(payload.refreshId, failingJob(payload));
    else if (type === "recovered") this.failing.delete(payload.refreshId);
    this.on.changed({});
  }

  #handleView({ viewId, clientId, status }) {
    const others = this.snapshot.views.filter((view) => view.viewId !== viewId);
    const views = status === "opened" ? [...others, { viewId, clientId }] : others;
    this.snapshot = { ...this.snapshot, views };
    this.on.changed({});
  }

  /** The running executions in the order in which they started: {actionId, eventId, at}. */
  get running() {
    return [...this.#running.values()].sort((first, second) => (first.eventId < second.eventId ? -1 : 1));
  }
}

function failingJob({ refreshId, actionId, failures, error, retryInMs }) {
  const nextAt = Date.now() + retryInMs;
  return { refreshId, actionId, failures, error: error?.message, errorName: error?.name, nextAt };
}
