// A thread as turns: each a question, the run that works on it, and its answer. Pure: events in, turns out.
//
// One run speaks in a thread at a time, so what does not say whose it is belongs to the run that speaks.

import { isMarker, sizeOf } from "./values.js";

export class Thread {
  turns = new Map(); // by run
  changed = new Set(); // turns to be shown again; whoever shows them empties it
  #speaking = null;
  #isGuess = false;

  /** `restarts`: when runs were begun again, where that is known from before. */
  constructor(restarts = new Map()) { this.restarts = restarts; }

  /** A message as the store has it: whole. */
  recall(message) {
    const turn = this.#turn(message.run_id);
    noted(turn, message.role === "user" ? "askedAt" : "answeredAt", message.seq);
    if (message.role === "user") turn.question = { text: message.text, at: message.created_at };
    else Object.assign(this.#answerOf(turn), { text: message.text, at: message.created_at, status: message.status ?? "completed", error: message.error });
  }

  take({ seq, type, ts, data }) {
    if (type === "message.completed" && data.role === "user") {
      const turn = noted(this.#turn(data.run_id), "askedAt", seq);
      turn.question = { text: whole(turn.question?.text, data.text), at: ts };
    } else if (type === "message.completed") {
      const answer = this.#speak(this.#turn(data.run_id), seq, ts);
      Object.assign(answer, { text: whole(answer.text, data.text), at: ts, status: data.status, error: data.error });
      this.#speaking = null;
    } else if (type === "message.delta" || type === "reasoning.delta") {
      const turn = this.#turn(`run_${data.message_id.slice("msg_".length)}`); // an answer is named after its run
      const { items } = this.#speak(turn, seq, ts);
      if (isMarker(data.text)) items.push({ kind: "moved", isSaid: type === "message.delta", pieces: [{ text: data.text, ts }] });
      else grow(items, type === "message.delta" ? "text" : "thought", { text: data.text, ts });
    } else if (type === "tool.call" || type === "tool.result") {
      called(this.#speak(null, seq, ts).items, data, ts);
    } else if (type === "step.completed") {
      stepped(this.#speak(null, seq, ts).items, data);
    } // there will be more types
  }

  /** The run was begun again: what its lost worker had not finished will be said again. */
  restart(runId, ts) {
    this.#restartsOf(runId).push(ts);
    const turn = this.turns.get(runId);
    if (!turn) return;
    forget(turn);
    this.changed.add(turn);
  }

  #restartsOf(runId) {
    if (!this.restarts.has(runId)) this.restarts.set(runId, []);
    return this.restarts.get(runId);
  }

  /** In the order in which they were asked, which is the order in which they are answered. */
  inOrder() {
    return [...this.turns.values()].sort((one, other) => {
      const difference = one.askedAt - other.askedAt;
      if (!Number.isNaN(difference)) return difference;
      return (one.answeredAt ?? Infinity) - (other.answeredAt ?? Infinity); // of a turn further back only the answer may be known
    });
  }

  #turn(runId) {
    const turn = this.turns.get(runId) ?? { runId, question: null, answer: null, restarts: this.#restartsOf(runId), askedAt: undefined, answeredAt: undefined };
    this.turns.set(runId, turn);
    this.changed.add(turn);
    return turn;
  }

  #answerOf(turn) { return (turn.answer ??= { items: [], text: null, at: null, status: null, error: null, heard: "" }); }

  /** The answer that this run gives; without a run, the one that is being given, or else that of the first who waits for one. */
  #speak(turn, seq, ts) {
    if (turn && this.#isGuess && this.#speaking && this.#speaking !== turn) this.#handOver(this.#speaking, turn);
    if (turn) [this.#speaking, this.#isGuess] = [turn, false];
    if (!this.#speaking) [this.#speaking, this.#isGuess] = [this.inOrder().find((one) => !one.answer?.status) ?? this.#turn(`unnamed ${seq}`), true];
    this.changed.add(this.#speaking);
    const answer = this.#answerOf(noted(this.#speaking, "answeredAt", seq));
    answer.heard = ts;
    forget(this.#speaking);
    return answer;
  }

  /** It spoke before it said who it is, and was taken for another. */
  #handOver(guessed, turn) {
    this.#answerOf(turn).items = guessed.answer.items;
    noted(turn, "answeredAt", guessed.answeredAt);
    Object.assign(guessed, { answer: null, answeredAt: undefined });
    if (!guessed.question) this.turns.delete(guessed.runId);
    this.changed.add(guessed);
  }
}

/** Where in the thread something of a turn was first heard of. */
function noted(turn, what, seq) {
  turn[what] = Math.min(turn[what] ?? Infinity, seq);
  return turn;
}

function grow(items, kind, piece) {
  if (items.at(-1)?.kind !== kind) items.push({ kind, pieces: [] });
  items.at(-1).pieces.push(piece);
}

function called(items, data, ts) {
  let item = items.find((one) => one.kind === "tool" && one.id === data.call_id);
  if (!item) items.push((item = { kind: "tool", id: data.call_id, tool: data.tool, ts })); // a call that is made again is the same line
  for (const part of ["args", "result", "error"]) if (part in data) item[part] = data[part];
  if (isMarker(data)) item.whole = data;
}

function stepped(items, data) {
  if (!items.some((one) => one.kind === "step" && one.number === data.step)) items.push({ kind: "step", number: data.step });
}

/** Drop what a lost worker said after its last call, once its successor has begun to speak. */
function forget({ answer, restarts }) {
  const since = restarts.findLast((ts) => answer && answer.heard >= ts);
  if (!since) return;
  const settled = answer.items.findLastIndex((item) => item.kind === "tool" && item.ts < since);
  for (const item of answer.items.slice(settled + 1)) {
    if (item.pieces) item.pieces = item.pieces.filter((piece) => piece.ts >= since);
  }
}

/** A text that is known whole stays so when the log only has its marker. */
const whole = (known, told) => (isMarker(told) && typeof known === "string" ? known : told);

export const textOf = (item) => item.pieces.map((piece) => piece.text).join("");

/** What there is to show of an answer, in order. Where its deltas do not add up to its text, the text is what counts. */
export function shownOf(answer) {
  const { items, text } = answer;
  const isSaid = (item) => item.kind === "text" || item.isSaid;
  const said = items.filter(isSaid).flatMap((item) => item.pieces.map((piece) => piece.text));
  const size = () => sizeOf(said.filter((piece) => !isMarker(piece)).join("")) + said.filter(isMarker).reduce((sum, one) => sum + one.original_size, 0);
  const addsUp = text === null || (isMarker(text) ? text.original_size === size() : text === said.join(""));
  if (addsUp) return items;
  answer.final ??= { kind: "final" };
  return [...items.filter((item) => !isSaid(item)), answer.final];
}
