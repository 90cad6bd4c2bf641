// @ts-check
// The chat of one session: its turns as bubbles, the unsent messages, and scrolling to the newest.
//
// Nodes are created once and changed in place, so that an open detail or a selection stays while an answer
// grows.

import { attachmentsOf, textOf, Thread, visibleItems } from "./thread.js";
import {
  arrange, attempt, button, byId, element, fetchAttachments, fetchMarker, request, showReferences, summarize,
  time, valueNode,
} from "./values.js";

const DRAW_MS = 20; // events that arrive within this time are drawn together
const NEAR_END_PX = 60; // a reader this close to the end is kept at the end
const MAX_AUTO_FETCH_BYTES = 65_536; // a longer text that its event cuts is fetched on request
const EARLIER_LIMIT = 50;

const ORDINALS = ["next", "2nd", "3rd"];

export class Chat {
  #thread = new Thread();
  #nodes = new Map(); // by turn: {root, question, answer, parts, note, items: Map}
  #activeRuns = null; // unfinished runs in the order of their turns; null: not loaded
  #outbox = [];
  #next = null;
  #timer = null;
  #includeInternal = false;

  /**
   * `on` has: changed(), show(runId), cancel(runId), resend(key), discard(key),
   * edit(key, text).
   */
  constructor(on) {
    this.on = on;
    this.list = byId("turns");
    this.isFollowing = true; // whether new content scrolls into view
    this.list.onscroll = () => {
      const { scrollHeight, scrollTop, clientHeight } = this.list;
      this.isFollowing = scrollHeight - scrollTop - clientHeight < NEAR_END_PX;
    };
    new ResizeObserver(() => this.follow()).observe(this.list);
    byId("earlier").onclick = () => attempt(byId("chat-problem"), () => this.#loadEarlier());
  }

  /** Show another session, or the same one with or without internal events. */
  open(sessionId, includeInternal) {
    if (sessionId !== this.sessionId) this.#thread = new Thread();
    this.sessionId = sessionId;
    this.#includeInternal = includeInternal;
    this.#activeRuns = null;
    this.#outbox = [];
    this.isLoaded = false;
    this.#clear();
  }

  #clear() {
    this.#thread = new Thread();
    this.#nodes.clear();
    this.#next = null;
    this.list.replaceChildren();
    this.#draw();
  }

  reset(history, events = []) {
    this.#clear();
    this.isLoaded = true;
    this.#next = history?.next ?? null;
    for (const message of history?.messages ?? []) this.#thread.addMessage(message);
    for (const event of events) this.#addEvent(event);
    this.isFollowing = true;
    this.#draw();
  }

  follow() { if (this.isFollowing) this.list.scrollTop = this.list.scrollHeight; }

  handleEvent(event) {
    this.#addEvent(event);
    this.#drawSoon();
  }

  #addEvent(event) {
    const { visibility } = event.data;
    // Internal events are shown in debug mode only. CC-12
    const isVisible = visibility === "public" || (visibility === "internal" && this.#includeInternal);
    if (isVisible) this.#thread.addEvent(event);
  }

  setOutbox(outbox) {
    this.#outbox = outbox;
    this.#drawSoon();
  }

  setActiveRuns(runIds) {
    this.#activeRuns = runIds;
    for (const turn of this.#thread.turns.values()) if (!turn.answer?.status) this.#thread.changed.add(turn);
    this.#drawSoon();
  }

  get isEmpty() { return this.isLoaded && !this.#thread.turns.size && !this.#outbox.length; }
  get hasUnsent() { return this.#outbox.some((entry) => entry.is !== "refused"); }
  get newestRun() { return this.#thread.inOrder().findLast((turn) => turn.answer)?.runId ?? null; }

  async #loadEarlier() {
    const path = `/api/sessions/${encodeURIComponent(this.sessionId)}/messages`;
    const query = `limit=${EARLIER_LIMIT}&before=${this.#next}`;
    const { messages, next = null } = await request("GET", `${path}?${query}`);
    const distanceToEnd = this.list.scrollHeight - this.list.scrollTop;
    this.#next = next;
    for (const message of messages) this.#thread.addMessage(message);
    this.#draw();
    this.list.scrollTop = this.list.scrollHeight - distanceToEnd;
  }

  // -- drawing

  #drawSoon() { this.#timer ??= setTimeout(() => this.#draw(), DRAW_MS); }

  #draw() {
    clearTimeout(this.#timer);
    this.#timer = null;
    const turns = this.#thread.inOrder();
    for (const turn of this.#thread.changed) this.#drawTurn(turn);
    this.#thread.changed.clear();
    const roots = turns.map((turn) => this.#nodes.get(turn).root);
    arrange(this.list, [...roots, ...this.#outbox.map((entry) => this.#unsentTurn(entry))]);
    byId("earlier").hidden = this.#next === null;
    this.on.changed();
    this.follow();
  }

  #drawTurn(turn) {
    const nodes = this.#nodes.get(turn) ?? this.#createTurn(turn);
    if (turn.question && nodes.questionShown !== turn.question) {
      nodes.questionShown = turn.question;
      const text = this.#drawText(element("div", "text"), turn.question, turn);
      nodes.question.replaceChildren(text, time(turn.question.at));
    }
    nodes.question.hidden = !turn.question;
    const items = turn.answer ? visibleItems(turn.answer) : [];
    arrange(nodes.parts, items.map((item) => this.#drawItem(nodes, item, turn)));
    const note = this.#noteOf(turn);
    nodes.note.className = `note ${note.kind}`;
    nodes.note.replaceChildren(...note.nodes);
    nodes.answer.hidden = !turn.answer && !note.nodes.length;
    nodes.root.dataset.state = note.kind;
  }

  #createTurn(turn) {
    const question = element("div", "bubble question");
    const [parts, note] = [element("div", "parts"), element("div", "note")];
    const answer = element("div", "bubble answer", parts, note);
    const root = element("article", "turn", question, answer);
    root.dataset.run = turn.runId;
    const nodes = { root, question, parts, note, answer, items: new Map() };
    this.#nodes.set(turn, nodes);
    return nodes;
  }

  /** Draw a text. Of a cut text, a short one is fetched at once, a long one on request. */
  #drawText(node, holder, turn) {
    const { text, attachments, isCut } = holder;
    const list = Array.isArray(attachments) ? attachments : [];
    setText(node, text, isCut ? list.slice(1) : list);
    if (isCut && list.length) node.append("… ", valueNode(list[0]));
    const isLong = isCut && list[0]?.original_size > MAX_AUTO_FETCH_BYTES;
    const isPart = list !== attachments || (isCut && list.length);
    if (isPart && !isLong && !holder.isFetching) {
      holder.isFetching = true;
      this.#complete(holder, turn).catch(() => {}); // what the event has stays
    }
    return node;
  }

  /** Fetch what an event does not have: its list of attachments, and its complete text unless it is long. */
  async #complete(holder, turn) {
    const [whole, ...others] = await fetchAttachments(holder.attachments);
    if (!holder.isCut) holder.attachments = [whole, ...others];
    else if (whole.original_size > MAX_AUTO_FETCH_BYTES) holder.attachments = [whole, ...others];
    else {
      const text = await fetchMarker(whole);
      Object.assign(holder, { text, attachments: others, isCut: false });
    }
    if (turn.question === holder) turn.question = { ...holder };
    this.#thread.changed.add(turn);
    this.#drawSoon();
  }

  #drawItem(nodes, item, turn) {
    const create = { tool: createTool, thought: createThought, step: createStep }[item.kind];
    const node = nodes.items.get(item) ?? create?.(item) ?? element("div", "text");
    nodes.items.set(item, node);
    if (item.kind === "text") setText(node, textOf(item).replace(/^\n+/, ""), attachmentsOf(item));
    if (item.kind === "thought") setText(node.lastChild, textOf(item), attachmentsOf(item));
    if (item.kind === "tool") drawTool(node, item, turn);
    if (item.kind === "final") this.#drawText(node, turn.answer, turn);
    return node;
  }

  /** Return the note below a turn: its position in the queue, that it runs, or how it ended. */
  #noteOf(turn) {
    const { answer, runId } = turn;
    const showRun = () => {
      const node = button("plain", "run", () => this.on.show(runId));
      node.title = "Show the state of this run";
      return node;
    };
    const status = (name, text) => element("span", `status ${name}`, text);
    if (answer?.status) {
      const text = answer.error ? `${answer.status}: ${answer.error}` : answer.status;
      const ending = answer.status === "completed" ? [] : [status(answer.status, text)];
      return { kind: answer.status, nodes: [time(answer.at), ...ending, showRun()] };
    }
    const position = this.#activeRuns?.indexOf(runId) ?? -1;
    if (position > 0) {
      const text = `queued, ${ORDINALS[position - 1] ?? `${position}th`} in line`;
      const cancel = button("plain", "cancel", () => this.on.cancel(runId));
      return { kind: "queued", nodes: [status("queued", text), cancel] };
    }
    if (position === 0 || answer) {
      return { kind: "running", nodes: [status("running", "working…"), showRun()] };
    }
    if (this.#activeRuns) {
      return { kind: "cancelled", nodes: [status("cancelled", "cancelled before it started"), showRun()] };
    }
    return { kind: "", nodes: [] };
  }

  #unsentTurn({ is, text, message, key }) {
    const label = { waiting: "waiting for the server…", sent: "sending…", refused: message }[is];
    const className = is === "refused" ? "problem" : "status";
    const note = element("div", `note ${is}`, element("span", className, label));
    if (is === "refused") {
      note.append(
        button("plain", "edit", () => this.on.edit(key, text)),
        button("plain", "try again", () => this.on.resend(key)),
        button("plain", "discard", () => this.on.discard(key)),
      );
    }
    const bubble = element("div", "bubble question", setText(element("div", "text"), text), note);
    const root = element("article", "turn", bubble);
    root.dataset.state = `unsent ${is}`;
    return root;
  }
}

/** Set the text of a node; a text that only grew is appended to, so that a selection stays. */
function setText(node, text, attachments = []) {
  const shown = node.childElementCount ? "" : node.textContent;
  if (attachments.length) showReferences(node, text, attachments);
  else if (shown && text.startsWith(shown)) node.append(text.slice(shown.length));
  else node.textContent = text;
  node.classList.toggle("script", text.startsWith('{"script"'));
  return node;
}

function createThought() {
  const summary = element("summary", "", element("span", "tag", "internal"), " thought");
  const node = element("details", "thought", summary, element("div", "text"));
  node.open = true;
  return node;
}

function createStep({ number }) {
  return element("div", "step", element("span", "tag", "internal"), ` step ${number} is finished and stored`);
}

function createTool(item) {
  const name = element("code", "", item.tool ?? "tool");
  const summary = element("summary", "", name, " ", element("span", "faint"));
  return element("details", "tool", summary, element("div", "detail"));
}

function drawTool(node, item, turn) {
  const [summary, detail] = node.children;
  const isFinished = "result" in item || "error" in item || item.marker;
  // The tools of documents answer `ok: false` for what they refuse, so that the model reads the code.
  const { ok, code, message } = item.result ?? {};
  const refusal = ok === false && code && message ? `${code}: ${message}` : null;
  let state = turn.answer.status ? "stopped" : "calling…";
  if (isFinished) state = "error" in item ? "failed" : refusal ? "refused" : "done";
  node.dataset.state = state;
  const text = summarize(isFinished ? item.error ?? refusal ?? item.result : item.args);
  summary.lastChild.textContent = `${state}${text ? ` · ${text}` : ""}`;
  const { args, result, error, marker } = item;
  const all = [["arguments", args], ["result", result], ["error", error], ["details", marker]];
  const parts = all.filter(([, value]) => value !== undefined);
  if (detail.children.length === 2 * parts.length) return;
  const rows = parts.flatMap(([name, value]) => [element("div", "faint", name), valueNode(value)]);
  detail.replaceChildren(...rows);
}
