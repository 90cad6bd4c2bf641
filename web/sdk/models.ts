// `data-gsv-model`: two-way bindings of fields and values in the state.
//
// An entry that is not saved yet is never overwritten by a change from elsewhere. Each entry is sent with the
// value that the field showed before; if the state has another value by then, nothing is saved and the shell
// asks the person to choose. Knows no field: see `fields`.

import { handlers, known, RequestRefused, reportProblem, request } from "./bridge";
import { type Parts, type Path, resolvePath, toPointer } from "./paths";
import { asText, isEqual, MISSING } from "./values";

const PAUSE_MS = 250; // wait after the last key before an entry is sent
const MAX_PAUSE_MS = 1_000; // longest wait while typing continues
const MAX_MOVES = 20; // attempts to save an entry in a list that other users keep changing
export const NONE: unique symbol = Symbol("none");

/** A row of a list, as its models know it. */
export interface ModelRow {
  readonly id: number;
  /** The place of the item in the state; null if the list is not in the state. */
  readonly parts: Parts | null;
  readonly modelKeys: Set<string>;
}

// By pointer; those of a list's row by the row and the pointer below its item.
const models = new Map<string, Model>();

export class Model {
  isConflict = false;
  problem: string | null = null;
  isNumber = false; // whether an entered text is stored as a number
  sentPointer: string | null = null;
  #draft: unknown = NONE; // entered and not sent
  #sending: unknown = NONE; // sent and not answered
  #base: unknown = null; // the value of the state when the entry began
  #timer: ReturnType<typeof setTimeout> | undefined;
  #since = 0;
  #moveCount = 0;
  #isClosed = false;
  readonly #below: Parts;
  readonly #row: ModelRow | null;

  /** `parts` lead to the value from the state, or from the item of `row`. */
  constructor(parts: Parts, row: ModelRow | null) {
    this.#below = parts;
    this.#row = row;
  }

  get parts(): Parts {
    return this.#row ? [...(this.#row.parts ?? []), ...this.#below] : this.#below;
  }

  get stored(): unknown {
    const value = resolvePath(known.state, this.parts);
    return value === MISSING ? null : value;
  }

  get isDirty(): boolean {
    return this.#draft !== NONE || this.#sending !== NONE;
  }

  get value(): unknown {
    if (this.#draft !== NONE) return this.#draft;
    return this.#sending === NONE ? this.stored : this.#sending;
  }

  /** Take the type of entries from the stored value. Keep it while that is null or an entry is unsaved. */
  updateType(): void {
    if (!this.isDirty && this.stored !== null) this.isNumber = typeof this.stored === "number";
  }

  enter(value: unknown, isTyping: boolean): void {
    if (!this.isDirty) this.#base = this.stored;
    this.#draft = value;
    this.problem = null;
    clearTimeout(this.#timer);
    this.#since ||= Date.now();
    const pause = isTyping ? Math.max(0, Math.min(PAUSE_MS, this.#since + MAX_PAUSE_MS - Date.now())) : 0;
    this.#timer = setTimeout(() => this.send(), pause);
  }

  async send(): Promise<void> {
    clearTimeout(this.#timer);
    this.#since = 0;
    if (this.#isClosed) return;
    if (this.#draft === NONE || this.#sending !== NONE || this.isConflict || this.problem) return;
    const sent = this.#draft;
    [this.#sending, this.#draft] = [sent, NONE];
    this.sentPointer = toPointer(this.parts);
    // An item may have moved since. The server then refuses this revision, and the entry is sent again.
    const revision = this.#row ? known.revision : undefined;
    let isSaved = false;
    try {
      await request("input", { pointer: this.sentPointer, value: sent, was: this.#base, revision });
      this.#base = sent;
      this.#moveCount = 0;
      isSaved = true;
    } catch (problem) {
      this.#keepEntry(sent, problem);
    }
    this.#sending = NONE;
    if (isSaved && this.#draft !== NONE && isEqual(this.#draft, sent)) this.#draft = NONE;
    if (this.#draft !== NONE) this.send();
    handlers.render();
    settleWaiters();
  }

  /** Keep an entry that was not saved, unless the person has entered another one since. */
  #keepEntry(sent: unknown, problem: unknown): void {
    const { name, message } = problem instanceof Error ? problem : new Error(String(problem));
    if (this.#draft === NONE) this.#draft = sent;
    this.isConflict = name === "INPUT_CONFLICT";
    this.#moveCount += 1;
    const mayHaveMoved = name === "REVISION_CONFLICT" && this.#moveCount <= MAX_MOVES;
    if (!this.isConflict && !mayHaveMoved) this.problem = message;
  }

  /** End the model: the item of its row is gone. */
  close(): void {
    this.#isClosed = true; // its place in the state is that of another item now
    clearTimeout(this.#timer);
    if (!this.isDirty) return;
    const name = `state.${this.parts.join(".")}`;
    reportProblem(name, `“${asText(this.value)}” was not saved: another user removed the item.`);
    this.#draft = NONE;
  }

  /** Apply the person's choice between their own entry and the stored value. */
  resolve(keep: "mine" | "theirs"): void {
    this.isConflict = false;
    if (keep === "mine") this.#base = this.stored;
    else this.#draft = NONE;
    this.send();
    handlers.render();
    settleWaiters();
  }
}

/** Return the model of a path in a row or, with null, in the page; null if the path cannot be written. */
export function modelOf(row: ModelRow | null, path: Path | null): Model | null {
  if (!path || path.root === "index") return null;
  const isItem = path.root === "item";
  if (isItem ? row === null : !path.parts.length) return null;
  const owner = isItem ? row : null;
  const key = `${owner ? `#${owner.id}` : ""}${toPointer(path.parts)}`;
  const found = models.get(key);
  if (found) return found;
  const model = new Model(path.parts, owner);
  models.set(key, model);
  owner?.modelKeys.add(key);
  return model;
}

/** End the models of a row whose item is gone. */
export function closeModels(row: ModelRow): void {
  for (const key of row.modelKeys) {
    models.get(key)?.close();
    models.delete(key);
  }
  if (row.modelKeys.size) settleWaiters();
}

/** Return the model whose entry at this place is in conflict. Rows may have been saved there before it. */
export const findConflict = (pointer: string): Model | undefined =>
  [...models.values()].find(({ isConflict, sentPointer }) => isConflict && sentPointer === pointer);

// --- waiting until all entries are saved -------------------------------------------------------------------

const waiters = new Set<{ resolve: () => void; reject: (problem: RequestRefused) => void }>();
let isDisconnected = false;
const unsavedModels = (): Model[] => [...models.values()].filter((model) => model.isDirty);

export function setConnected(isLive: boolean): void {
  isDisconnected = !isLive;
  settleWaiters();
}

export function sendEntries(): void {
  for (const model of models.values()) model.send();
}

/** Wait until all entries are saved. Rejects if one needs the person's decision or cannot be saved now. */
export function allSaved(): Promise<void> {
  sendEntries();
  if (!unsavedModels().length) return Promise.resolve();
  return new Promise((resolve, reject) => {
    waiters.add({ resolve, reject });
    settleWaiters();
  });
}

function settleWaiters(): void {
  const unsaved = unsavedModels();
  const stuck = unsaved.find((model) => model.isConflict || model.problem);
  if (unsaved.length && !stuck && !isDisconnected) return;
  for (const waiter of waiters) {
    if (unsaved.length) waiter.reject(unsavedError(stuck));
    else waiter.resolve();
  }
  waiters.clear();
}

function unsavedError(stuck: Model | undefined): RequestRefused {
  if (!stuck) {
    const message = "There is no connection to the server.";
    return new RequestRefused({ name: "UNAVAILABLE", code: 503, message });
  }
  const reason = stuck.problem ?? "another user changed it too.";
  const message = `state.${stuck.parts.join(".")} is not saved: ${reason}`;
  return new RequestRefused({ name: "NOT_SAVED", code: 409, message });
}
