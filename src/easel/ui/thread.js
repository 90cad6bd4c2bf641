// A thread as turns: each a question, the run that works on it, and its answer. Pure: events in, turns out.
//
// One run speaks in a thread at a time, so what does not say whose it is belongs to the run that speaks.

import { isMarker, sizeOf } from "./values.js";

export class Thread {
  turns = new Map(); // by run
  #speaking = null;

  /** A message as the store has it: whole. */
  recall(message) {
    const turn = this.#turn(message.run_id, message.seq);
    if (message.role === "user") turn.question = { text: message.text, at: message.created_at };
    else Object.assign(this.#answerOf(turn), { text: message.text, at: message.created_at, status: message.status ?? "completed", error: message.error });
    return turn;
  }

  /** An event of the log; gives the turn that it changed. */
  take({ seq, type, ts, data }) {
    switch (type) {
      case "message.completed":
        return data.role === "user" ? this.#asked(seq, ts, data) : this.#answered(seq, ts, data);
      case "message.delta":
        return this.#grow("text", this.#speaker(seq, ts, data.message_id), data.text, ts);
      case "reasoning.delta":
        return this.#grow("thought", this.#speaker(seq, ts, data.message_id), data.text, ts);
      case "tool.call":
        return this.#called(this.#speaker(seq, ts), data, ts);
      case "tool.result":
        return this.#called(this.#speaker(seq, ts), data, ts);
      case "step.completed":
        return this.#stepped(this.#speaker(seq, ts), data);
    }
    return null; // there will be more types
  }

  /** The run was begun again: what its lost worker had not finished will be said again. */
  restart(runId, ts) {
    const turn = this.turns.get(runId);
    if (turn) {
      turn.restarts.push(ts);
      forget(turn);
    }
    return turn;
  }

  /** In the order in which they were asked. */
  inOrder() { return [...this.turns.values()].sort((one, other) => one.seq - other.seq); }

  #turn(runId, seq) {
    const turn = this.turns.get(runId) ?? { runId, seq, question: null, answer: null, restarts: [] };
    turn.seq = Math.min(turn.seq, seq);
    this.turns.set(runId, turn);
    return turn;
  }

  #answerOf(turn) { return (turn.answer ??= { items: [], text: null, at: null, status: null, error: null, heard: "" }); }

  /** Whose turn it is to speak: the run that its message names, or the one that spoke last, or the first that waits for an answer. */
  #speaker(seq, ts, messageId) {
    if (messageId) this.#speaking = this.#turn(`run_${messageId.slice("msg_".length)}`, seq); // an answer is named after its run
    this.#speaking ??= this.inOrder().find((turn) => !turn.answer?.status) ?? this.#turn(`unnamed ${seq}`, seq);
    this.#answerOf(this.#speaking).heard = ts;
    forget(this.#speaking);
    return this.#speaking;
  }

  #asked(seq, ts, data) {
    const turn = this.#turn(data.run_id, seq);
    turn.question = { text: whole(turn.question?.text, data.text), at: ts };
    return turn;
  }

  #answered(seq, ts, data) {
    const turn = this.#turn(data.run_id, seq);
    const answer = this.#answerOf(turn);
    const guessed = this.#speaking;
    if (guessed && guessed !== turn) [answer.items, guessed.answer] = [guessed.answer.items, null]; // it spoke without its name
    Object.assign(answer, { text: whole(answer.text, data.text), at: ts, status: data.status, error: data.error });
    this.#speaking = null;
    return turn;
  }

  #grow(kind, turn, text, ts) {
    const items = turn.answer.items;
    if (items.at(-1)?.kind !== kind) items.push({ kind, pieces: [] });
    items.at(-1).pieces.push({ text, ts });
    return turn;
  }

  #called(turn, data, ts) {
    const items = turn.answer.items;
    let item = items.find((one) => one.kind === "tool" && one.id === data.call_id);
    if (!item) items.push((item = { kind: "tool", id: data.call_id, tool: data.tool, ts })); // a call that is made again is the same line
    for (const part of ["args", "result", "error"]) if (part in data) item[part] = data[part];
    if (isMarker(data)) item.whole = data;
    return turn;
  }

  #stepped(turn, data) {
    const items = turn.answer.items;
    if (!items.some((one) => one.kind === "step" && one.number === data.step)) items.push({ kind: "step", number: data.step });
    return turn;
  }
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
  const said = items.filter((item) => item.kind === "text").map(textOf).join("");
  const addsUp = text === null || text === said || (isMarker(text) && text.original_size === sizeOf(said));
  if (addsUp) return items;
  answer.final ??= { kind: "final" };
  answer.final.value = text;
  return [...items.filter((item) => item.kind !== "text"), answer.final];
}
