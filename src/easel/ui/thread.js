// A thread as turns: each has a question, the run that works on it, and its answer. Pure: events in, turns
// out.
//
// Only one run of a thread is active at a time, so an event without a run id belongs to the active run.

import { isMarker, sizeOf } from "./values.js";

export class Thread {
  turns = new Map(); // by run id
  changed = new Set(); // turns to draw again; the chat clears the set
  #active = null;
  #isActiveGuessed = false;

  /** `restarts`: by run id, the times of known restarts. */
  constructor(restarts = new Map()) { this.restarts = restarts; }

  /** Add a message from the store; its text is complete. */
  addMessage(message) {
    const turn = this.#turn(message.run_id);
    setFirstSeq(turn, message.role === "user" ? "askedAt" : "answeredAt", message.seq);
    const { text, created_at: at, status = "completed", error } = message;
    if (message.role === "user") turn.question = { text, at };
    else Object.assign(this.#answerOf(turn), { text, at, status, error });
  }

  addEvent({ seq, type, ts, data }) {
    if (type === "message.completed" && data.role === "user") {
      const turn = setFirstSeq(this.#turn(data.run_id), "askedAt", seq);
      turn.question = { text: preferText(turn.question?.text, data.text), at: ts };
    } else if (type === "message.completed") {
      const answer = this.#activate(this.#turn(data.run_id), seq, ts);
      const text = preferText(answer.text, data.text);
      Object.assign(answer, { text, at: ts, status: data.status, error: data.error });
      this.#active = null;
    } else if (type === "message.delta" || type === "reasoning.delta") {
      // The id of an answer is derived from the id of its run.
      const turn = this.#turn(`run_${data.message_id.slice("msg_".length)}`);
      const answer = this.#activate(turn, seq, ts);
      dropFormerAttempt(answer, data.attempt);
      const { items } = answer;
      const isAnswer = type === "message.delta";
      if (isMarker(data.text)) items.push({ kind: "offloaded", isAnswer, pieces: [{ text: data.text, ts }] });
      else addPiece(items, isAnswer ? "text" : "thought", { text: data.text, ts });
    } else if (type === "tool.call" || type === "tool.result") {
      addCall(this.#activate(null, seq, ts).items, data, ts);
    } else if (type === "step.completed") {
      addStep(this.#activate(null, seq, ts).items, data);
    } // ignore unknown types
  }

  /** Record that a run was restarted: its new worker repeats the unfinished step of the lost worker. */
  restart(runId, ts) {
    this.#restartsOf(runId).push(ts);
    const turn = this.turns.get(runId);
    if (!turn) return;
    dropUnfinished(turn);
    this.changed.add(turn);
  }

  #restartsOf(runId) {
    if (!this.restarts.has(runId)) this.restarts.set(runId, []);
    return this.restarts.get(runId);
  }

  /** Return the turns in the order of their questions, which is the order of their answers. */
  inOrder() {
    return [...this.turns.values()].sort((first, second) => {
      const difference = first.askedAt - second.askedAt;
      if (!Number.isNaN(difference)) return difference;
      // Compare the answers if a question is not loaded.
      return (first.answeredAt ?? Infinity) - (second.answeredAt ?? Infinity);
    });
  }

  #turn(runId) {
    const restarts = this.#restartsOf(runId);
    const positions = { askedAt: undefined, answeredAt: undefined };
    const turn = this.turns.get(runId) ?? { runId, question: null, answer: null, restarts, ...positions };
    this.turns.set(runId, turn);
    this.changed.add(turn);
    return turn;
  }

  #answerOf(turn) {
    return (turn.answer ??= { items: [], text: null, at: null, status: null, error: null, lastEventAt: "" });
  }

  /** Return the answer of a turn; without a turn that of the active one, or of the first unanswered one. */
  #activate(turn, seq, ts) {
    if (turn && this.#isActiveGuessed && this.#active && this.#active !== turn) {
      this.#moveItems(this.#active, turn);
    }
    if (turn) [this.#active, this.#isActiveGuessed] = [turn, false];
    if (!this.#active) {
      const unanswered = this.inOrder().find((candidate) => !candidate.answer?.status);
      [this.#active, this.#isActiveGuessed] = [unanswered ?? this.#turn(`unnamed ${seq}`), true];
    }
    this.changed.add(this.#active);
    const answer = this.#answerOf(setFirstSeq(this.#active, "answeredAt", seq));
    answer.lastEventAt = ts;
    dropUnfinished(this.#active);
    return answer;
  }

  /** Move the items of a wrongly guessed turn to the turn that they belong to. */
  #moveItems(guessed, turn) {
    this.#answerOf(turn).items = guessed.answer.items;
    setFirstSeq(turn, "answeredAt", guessed.answeredAt);
    Object.assign(guessed, { answer: null, answeredAt: undefined });
    if (!guessed.question) this.turns.delete(guessed.runId);
    this.changed.add(guessed);
  }
}

/** Record the lowest sequence number of a turn's question ("askedAt") or answer ("answeredAt"). */
function setFirstSeq(turn, member, seq) {
  turn[member] = Math.min(turn[member] ?? Infinity, seq);
  return turn;
}

function addPiece(items, kind, piece) {
  if (items.at(-1)?.kind !== kind) items.push({ kind, pieces: [] });
  items.at(-1).pieces.push(piece);
}

function addCall(items, data, ts) {
  // A repeated call has the same id.
  let item = items.find((known) => known.kind === "tool" && known.id === data.call_id);
  if (!item) items.push((item = { kind: "tool", id: data.call_id, tool: data.tool, ts }));
  for (const part of ["args", "result", "error"]) if (part in data) item[part] = data[part];
  if (isMarker(data)) item.marker = data;
}

function addStep(items, { step }) {
  if (!items.some((item) => item.kind === "step" && item.number === step)) {
    items.push({ kind: "step", number: step });
  }
}

/** Drop the text after the last call when a new attempt writes text: it repeats the unfinished step. */
function dropFormerAttempt(answer, attempt = 1) {
  const isNew = attempt > (answer.attempt ?? attempt);
  answer.attempt = attempt;
  if (!isNew) return;
  const lastCall = answer.items.findLastIndex((item) => item.kind === "tool");
  for (const item of answer.items.slice(lastCall + 1)) if (item.pieces) item.pieces = [];
}

/** Drop the text that a lost worker wrote after its last call, once its successor has written something. */
function dropUnfinished({ answer, restarts }) {
  const since = restarts.findLast((ts) => answer && answer.lastEventAt >= ts);
  if (!since) return;
  const lastCall = answer.items.findLastIndex((item) => item.kind === "tool" && item.ts < since);
  for (const item of answer.items.slice(lastCall + 1)) {
    if (item.pieces) item.pieces = item.pieces.filter((piece) => piece.ts >= since);
  }
}

/** Return the new text, or the known complete text if the new one is only a marker. */
const preferText = (known, text) => (isMarker(text) && typeof known === "string" ? known : text);

export const textOf = (item) => item.pieces.map((piece) => piece.text).join("");

/**
 * Return the items of an answer in order. If its deltas do not add up to its text, the text replaces them.
 */
export function visibleItems(answer) {
  const { items, text } = answer;
  const isAnswerText = (item) => item.kind === "text" || item.isAnswer;
  const pieces = items.filter(isAnswerText).flatMap((item) => item.pieces.map((piece) => piece.text));
  const size = () => {
    const offloaded = pieces.filter(isMarker).reduce((sum, marker) => sum + marker.original_size, 0);
    return offloaded + sizeOf(pieces.filter((piece) => !isMarker(piece)).join(""));
  };
  const addsUp = text === null || (isMarker(text) ? text.original_size === size() : text === pieces.join(""));
  if (addsUp) return items;
  answer.final ??= { kind: "final" };
  return [...items.filter((item) => !isAnswerText(item)), answer.final];
}
