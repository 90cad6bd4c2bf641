// @ts-check
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

  /** Add a message from the store; its text is complete. */
  addMessage(message) {
    const turn = this.#turn(message.run_id);
    setFirstSeq(turn, message.role === "user" ? "askedAt" : "answeredAt", message.seq);
    const { text, attachments = [], created_at: at, status = "completed", error } = message;
    const complete = { text, attachments, isCut: false, at };
    if (message.role === "user") turn.question = complete;
    else Object.assign(this.#answerOf(turn), { ...complete, status, error });
  }

  addEvent({ seq, type, ts, data }) {
    if (data.hidden) return; // a canvas update that only the model reads
    if (type === "message.completed" && data.role === "user") {
      const turn = setFirstSeq(this.#turn(data.run_id), "askedAt", seq);
      turn.question = { ...preferText(turn.question, data), at: ts };
    } else if (type === "message.completed") {
      const answer = this.#activate(this.#turn(data.run_id), seq);
      const text = preferText(answer.text === null ? null : answer, data);
      Object.assign(answer, { ...text, at: ts, status: data.status, error: data.error });
      this.#active = null;
    } else if (type === "message.delta" && data.role === "user") {
      addToQuestion(setFirstSeq(this.#turn(data.run_id), "askedAt", seq), data, ts);
    } else if (type === "message.delta" || type === "reasoning.delta") {
      // The id of an answer is derived from the id of its run.
      const turn = this.#turn(`run_${data.message_id.slice("msg_".length)}`);
      const answer = this.#activate(turn, seq);
      dropFormerAttempt(answer, data);
      const { items } = answer;
      const isAnswer = type === "message.delta";
      addPiece(items, isAnswer ? "text" : "thought", { text: data.text, attachments: listOf(data) });
    } else if (type === "tool.call" || type === "tool.result") {
      addCall(this.#activate(null, seq).items, data, ts);
    } else if (type === "step.completed") {
      addStep(this.#activate(null, seq).items, data);
    } // ignore unknown types
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
    const positions = { askedAt: undefined, answeredAt: undefined };
    const turn = this.turns.get(runId) ?? { runId, question: null, answer: null, ...positions };
    this.turns.set(runId, turn);
    this.changed.add(turn);
    return turn;
  }

  #answerOf(turn) {
    const ending = { text: null, attachments: [], isCut: false, at: null, status: null, error: null };
    return (turn.answer ??= { items: [], ...ending });
  }

  /** Return the answer of a turn; without a turn that of the active one, or of the first unanswered one. */
  #activate(turn, seq) {
    if (turn && this.#isActiveGuessed && this.#active && this.#active !== turn) {
      this.#moveItems(this.#active, turn);
    }
    if (turn) [this.#active, this.#isActiveGuessed] = [turn, false];
    if (!this.#active) {
      const unanswered = this.inOrder().find((candidate) => !candidate.answer?.status);
      [this.#active, this.#isActiveGuessed] = [unanswered ?? this.#turn(`unnamed ${seq}`), true];
    }
    this.changed.add(this.#active);
    return this.#answerOf(setFirstSeq(this.#active, "answeredAt", seq));
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

/** Drop the text after the last call when a new attempt, or a new try, repeats the unfinished step. */
function dropFormerAttempt(answer, { attempt = 1, try: number = 1 }) {
  const isNew = attempt > (answer.attempt ?? attempt) || number > (answer.try ?? number);
  Object.assign(answer, { attempt, try: number });
  if (!isNew) return;
  const lastCall = answer.items.findLastIndex((item) => item.kind === "tool");
  for (const item of answer.items.slice(lastCall + 1)) if (item.pieces) item.pieces = [];
}

/** Return the attachments of an event: a list, or the marker of a list that did not fit into the event. */
const listOf = (data) => data.attachments ?? [];

/** Return the text of an event, or the known text if the event has only its beginning. */
function preferText(known, data) {
  const isCut = data.truncated === true;
  if (isCut && known && !known.isCut && known.text.startsWith(data.text)) {
    return { text: known.text, attachments: known.attachments, isCut: false };
  }
  return { text: data.text, attachments: listOf(data), isCut };
}

/** Add a delta to a long question, unless the complete question is known. */
function addToQuestion(turn, data, ts) {
  if (turn.question && !turn.question.isGrowing) return;
  turn.question ??= { text: "", attachments: [], at: ts };
  const text = turn.question.text + data.text;
  turn.question = {
    text, attachments: joinAttachments([turn.question, data]), isCut: false, isGrowing: true, at: ts,
  };
}

/** Return all attachments of pieces of a text; a list that is only a marker is left out. */
function joinAttachments(pieces) {
  return pieces.flatMap((piece) => (Array.isArray(piece.attachments) ? piece.attachments : []));
}

export const textOf = (item) => item.pieces.map((piece) => piece.text).join("");
export const attachmentsOf = (item) => joinAttachments(item.pieces);

/**
 * Return the items of an answer in order. If its deltas do not add up to its text, the text replaces them.
 */
export function visibleItems(answer) {
  const { items, text, attachments, isCut } = answer;
  const pieces = items.filter((item) => item.kind === "text").flatMap((item) => item.pieces);
  const shown = pieces.map((piece) => piece.text).join("");
  const hasMarkers = pieces.every((piece) => Array.isArray(piece.attachments));
  // The first attachment of a cut text is the marker of the complete text.
  const whole = Array.isArray(attachments) ? attachments[0] : undefined;
  const isComplete = () => !whole || whole.original_size === sizeOf(shown);
  const addsUp = () => hasMarkers && (isCut ? shown.startsWith(text) && isComplete() : shown === text);
  if (text === null || addsUp()) return items;
  answer.final ??= { kind: "final" };
  return [...items.filter((item) => item.kind !== "text"), answer.final];
}
