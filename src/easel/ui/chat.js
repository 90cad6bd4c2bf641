// The chat of one session: its turns as bubbles, what waits to be said, and the newest in sight.
//
// What is on the page follows the thread: nodes are made once and changed in place, so that what a reader folded open or
// selected stays as it is while an answer grows.

import { Thread, shownOf, textOf } from "./thread.js";
import { arrange, at, attempt, button, call, element, fetched, glimpse, isMarker, time, valueNode } from "./values.js";

const FRAME_MS = 20; // events that come together are shown together
const NEAR_PX = 60; // so near to the end, a reader is taken along
const FETCHED_AT_ONCE = 65_536; // bytes of a message whose text was moved

const ORDINALS = ["next", "2nd", "3rd"];

export class Chat {
  #thread = new Thread();
  #nodes = new Map(); // by turn: {root, question, answer, note, items: Map}
  #live = null; // runs that have not ended, in the order of their turns; null: nobody has said yet
  #outbox = [];
  #next = null;
  #timer = null;
  #wantsInternal = false;

  /** `on` has: changed(), show(runId), cancel(runId), sayAgain(key), unsay(key). */
  constructor(on) {
    this.on = on;
    this.place = at("turns");
    this.isFollowing = true; // a reader at the end is taken along, one who reads further up is left in peace
    this.place.onscroll = () => { this.isFollowing = this.place.scrollHeight - this.place.scrollTop - this.place.clientHeight < NEAR_PX; };
    new ResizeObserver(() => this.follow()).observe(this.place);
    at("earlier").onclick = () => attempt(at("chat-problem"), () => this.#loadEarlier());
  }

  /** Another session, or the same one with other eyes. */
  begin(sessionId, wantsInternal) {
    if (sessionId !== this.sessionId) this.#thread = new Thread();
    this.sessionId = sessionId;
    this.#wantsInternal = wantsInternal;
    this.#live = null;
    this.#outbox = [];
    this.isKnown = false;
    this.#forget();
  }

  #forget() {
    this.#thread = new Thread(this.#thread.restarts);
    this.#nodes.clear();
    this.#next = null;
    this.place.replaceChildren();
    this.#show();
  }

  startAnew(history, events = []) {
    this.#forget();
    this.isKnown = true;
    this.#next = history?.next ?? null;
    for (const message of history?.messages ?? []) this.#thread.recall(message);
    for (const event of events) this.#take(event);
    this.isFollowing = true;
    this.#show();
  }

  follow() { if (this.isFollowing) this.place.scrollTop = this.place.scrollHeight; }

  hear(event) {
    this.#take(event);
    this.#showSoon();
  }

  #take(event) {
    const { visibility } = event.data;
    if (visibility === "public" || (visibility === "internal" && this.#wantsInternal)) this.#thread.take(event); // CC-12
  }

  restarted(runId, ts) {
    this.#thread.restart(runId, ts);
    this.#showSoon();
  }

  waiting(outbox) {
    this.#outbox = outbox;
    this.#showSoon();
  }

  alive(runIds) {
    this.#live = runIds;
    for (const turn of this.#thread.turns.values()) if (!turn.answer?.status) this.#thread.changed.add(turn);
    this.#showSoon();
  }

  get isEmpty() { return this.isKnown && !this.#thread.turns.size && !this.#outbox.length; }
  get hasUnsent() { return this.#outbox.some((one) => one.is !== "refused"); }
  get newestRun() { return this.#thread.inOrder().findLast((turn) => turn.answer)?.runId ?? null; }

  async #loadEarlier() {
    const { messages, next = null } = await call("GET", `/api/sessions/${encodeURIComponent(this.sessionId)}/messages?limit=50&before=${this.#next}`);
    const height = this.place.scrollHeight - this.place.scrollTop;
    this.#next = next;
    for (const message of messages) this.#thread.recall(message);
    this.#show();
    this.place.scrollTop = this.place.scrollHeight - height; // the reader stays where they were
  }

  // -- showing

  #showSoon() { this.#timer ??= setTimeout(() => this.#show(), FRAME_MS); }

  #show() {
    clearTimeout(this.#timer);
    this.#timer = null;
    const turns = this.#thread.inOrder();
    for (const turn of this.#thread.changed) this.#showTurn(turn);
    this.#thread.changed.clear();
    const roots = turns.map((turn) => this.#nodes.get(turn).root);
    arrange(this.place, [...roots, ...this.#outbox.map((one) => this.#unsent(one))]);
    at("earlier").hidden = this.#next === null;
    this.on.changed();
    this.follow();
  }

  #showTurn(turn) {
    const nodes = this.#nodes.get(turn) ?? this.#newTurn(turn);
    if (turn.question && nodes.said !== turn.question.text) {
      nodes.said = turn.question.text;
      nodes.question.replaceChildren(this.#put(element("div", "text"), turn.question, turn), time(turn.question.at));
    }
    nodes.question.hidden = !turn.question;
    const shown = turn.answer ? shownOf(turn.answer) : [];
    arrange(nodes.parts, shown.map((item) => this.#item(nodes, item, turn)));
    const note = this.#note(turn);
    nodes.note.className = `note ${note.kind}`;
    nodes.note.replaceChildren(...note.says);
    nodes.answer.hidden = !turn.answer && !note.says.length;
    nodes.root.dataset.state = note.kind;
  }

  #newTurn(turn) {
    const [question, parts, note] = [element("div", "bubble question"), element("div", "parts"), element("div", "note")];
    const answer = element("div", "bubble answer", parts, note);
    const nodes = { root: element("article", "turn", question, answer), question, parts, note, answer, items: new Map() };
    nodes.root.dataset.run = turn.runId;
    this.#nodes.set(turn, nodes);
    return nodes;
  }

  /** A text that may have been moved: short ones are fetched at once, long ones when they are asked for. */
  #put(place, holder, turn) {
    const { text } = holder;
    if (isMarker(text) && text.original_size <= FETCHED_AT_ONCE && !holder.isAsked) {
      holder.isAsked = true;
      fetched(text).then((whole) => { holder.text = whole; this.#thread.changed.add(turn); this.#showSoon(); }).catch(() => {}); // its link is still there
    }
    if (typeof text === "string") say(place, text);
    else if (!place.childElementCount) place.replaceChildren(valueNode(text));
    return place;
  }

  #item(nodes, item, turn) {
    const known = nodes.items.get(item);
    const node = known ?? { tool: newTool, thought: newThought, step: newStep }[item.kind]?.(item) ?? element("div", "text");
    nodes.items.set(item, node);
    if (item.kind === "text") say(node, textOf(item).replace(/^\n+/, ""));
    if (item.kind === "thought") say(node.lastChild, textOf(item));
    if (item.kind === "moved" && node.childElementCount !== item.pieces.length) node.replaceChildren(...item.pieces.map((piece) => valueNode(piece.text)));
    if (item.kind === "tool") showTool(node, item, turn);
    if (item.kind === "final") this.#put(node, turn.answer, turn);
    return node;
  }

  /** How it stands with a turn: who waits, who works, and how it ended. */
  #note(turn) {
    const { answer, runId } = turn;
    const see = () => Object.assign(button("plain", "run", () => this.on.show(runId)), { title: "Show the state of this run" });
    if (answer?.status) {
      const how = answer.status === "completed" ? null : element("span", `status ${answer.status}`, answer.error ? `${answer.status}: ${answer.error}` : answer.status);
      return { kind: answer.status, says: [time(answer.at), ...(how ? [how] : []), see()] };
    }
    const place = this.#live?.indexOf(runId) ?? -1;
    if (place > 0) {
      const says = `queued, ${ORDINALS[place - 1] ?? `${place}th`} in line`;
      return { kind: "queued", says: [element("span", "status queued", says), button("plain", "do not run it", () => this.on.cancel(runId))] };
    }
    if (place === 0 || answer) return { kind: "running", says: [element("span", "status running", "working…"), see()] };
    if (this.#live) return { kind: "cancelled", says: [element("span", "status cancelled", "cancelled before it began"), see()] };
    return { kind: "", says: [] };
  }

  #unsent(one) {
    const says = { waiting: "waiting for the server…", sent: "sending…", refused: one.says }[one.is];
    const note = element("div", `note ${one.is}`, element("span", one.is === "refused" ? "problem" : "status", says));
    if (one.is === "refused") note.append(button("plain", "try again", () => this.on.sayAgain(one.key)), button("plain", "discard", () => this.on.unsay(one.key)));
    const root = element("article", "turn", element("div", "bubble question", say(element("div", "text"), one.text), note));
    root.dataset.state = `unsent ${one.is}`;
    return root;
  }
}

/** Put a text there; where it only grew, add what is new, so that a selection in what was there stays. */
function say(node, text) {
  const shown = node.childElementCount ? "" : node.textContent;
  if (shown && text.startsWith(shown)) node.append(text.slice(shown.length));
  else node.textContent = text;
  node.classList.toggle("script", text.startsWith('{"script"'));
  return node;
}

function newThought() {
  const made = element("details", "thought", element("summary", "", element("span", "tag", "internal"), " thought"), element("div", "text"));
  made.open = true;
  return made;
}

const newStep = (item) => element("div", "step", element("span", "tag", "internal"), ` step ${item.number} is finished and kept`);

const newTool = (item) => element("details", "tool", element("summary", "", element("code", "", item.tool ?? "tool"), " ", element("span", "faint")), element("div", "detail"));

function showTool(node, item, turn) {
  const [summary, detail] = node.children;
  const isOver = "result" in item || "error" in item || item.whole;
  const state = "error" in item ? "failed" : isOver ? "done" : turn.answer.status ? "stopped" : "calling…";
  node.dataset.state = state;
  const said = isOver ? glimpse(item.error ?? item.result) : glimpse(item.args);
  summary.lastChild.textContent = `${state}${said ? ` · ${said}` : ""}`;
  const parts = [["arguments", item.args], ["result", item.result], ["error", item.error], ["all of it", item.whole]].filter(([, value]) => value !== undefined);
  if (detail.children.length === 2 * parts.length) return;
  detail.replaceChildren(...parts.flatMap(([name, value]) => [element("div", "faint", name), valueNode(value)]));
}
