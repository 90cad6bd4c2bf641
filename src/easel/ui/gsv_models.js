// `data-gsv-model`: a two-way binding of a field and a value in the state.
//
// An entry that is not saved yet is never overwritten by a change from elsewhere. Each entry is sent with the
// value that the field showed before; if the state has another value by then, nothing is saved and the shell
// asks the person to choose.

const PAUSE_MS = 250; // wait after the last key before an entry is sent
const MAX_PAUSE_MS = 1_000; // longest wait while typing continues
const NONE = Symbol("none");
const NUMBER = /^\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?\s*$/i;
const NUMBER_PREFIX = /^\s*[+-]?\d*\.?\d*(?:e[+-]?)?\s*$/i;

const MAX_MOVES = 20; // attempts to save an entry in a list that other users keep changing

const models = new Map(); // by pointer; those of a list's row by the row and the pointer below its item

class Model {
  draft = NONE; // entered and not sent
  sending = NONE; // sent and not answered
  base = null; // the value of the state when the entry began
  isConflict = false;
  problem = null;
  isNumber = false; // whether an entered text is stored as a number
  sentPointer = null;
  #timer = null;
  #since = 0;
  #moveCount = 0;
  #isClosed = false;

  /** `parts` lead to the value from the state, or from the item of `row`. */
  constructor(parts, row = null) {
    this.below = parts;
    this.row = row;
  }

  get parts() { return this.row ? [...this.row.parts ?? [], ...this.below] : this.below; }

  get stored() {
    const value = resolvePath(known.state, this.parts);
    return value === MISSING ? null : value;
  }

  get isDirty() { return this.draft !== NONE || this.sending !== NONE; }

  get value() {
    if (this.draft !== NONE) return this.draft;
    return this.sending === NONE ? this.stored : this.sending;
  }

  /**
   * Take the type of entries from the stored value. Keep it while that value is null or an entry is unsaved.
   */
  updateType() { if (!this.isDirty && this.stored !== null) this.isNumber = typeof this.stored === "number"; }

  enter(value, isTyping) {
    if (!this.isDirty) this.base = this.stored;
    this.draft = value;
    this.problem = null;
    clearTimeout(this.#timer);
    this.#since ||= Date.now();
    const pause = isTyping ? Math.max(0, Math.min(PAUSE_MS, this.#since + MAX_PAUSE_MS - Date.now())) : 0;
    this.#timer = setTimeout(() => this.send(), pause);
  }

  async send() {
    clearTimeout(this.#timer);
    this.#since = 0;
    if (this.#isClosed) return;
    if (this.draft === NONE || this.sending !== NONE || this.isConflict || this.problem) return;
    [this.sending, this.draft] = [this.draft, NONE];
    this.sentPointer = toPointer(this.parts);
    // An item may have moved since. The server then refuses this revision, and the entry is sent again.
    const revision = this.row ? known.revision : undefined;
    let isSaved = false;
    try {
      await request("input", { pointer: this.sentPointer, value: this.sending, was: this.base, revision });
      this.base = this.sending;
      this.#moveCount = 0;
      isSaved = true;
    } catch (problem) {
      if (this.draft === NONE) this.draft = this.sending;
      this.isConflict = problem.name === "INPUT_CONFLICT";
      this.#moveCount += 1;
      const mayHaveMoved = problem.name === "REVISION_CONFLICT" && this.#moveCount <= MAX_MOVES;
      if (!this.isConflict && !mayHaveMoved) this.problem = problem.message;
    }
    const sent = this.sending;
    this.sending = NONE;
    if (isSaved && this.draft !== NONE && isEqual(this.draft, sent)) this.draft = NONE;
    if (this.draft !== NONE) this.send();
    afterState();
    settleWaiters();
  }

  /** End the model: the item of its row is gone. */
  close() {
    this.#isClosed = true; // its place in the state is that of another item now
    clearTimeout(this.#timer);
    if (!this.isDirty) return;
    const name = `state.${this.parts.join(".")}`;
    reportProblem(name, `“${asText(this.value)}” was not saved: another user removed the item.`);
    this.draft = NONE;
  }

  /** Apply the person's choice between their own entry ("mine") and the stored value. */
  resolve(keep) {
    this.isConflict = false;
    if (keep === "mine") this.base = this.stored;
    else this.draft = NONE;
    this.send();
    afterState();
    settleWaiters();
  }
}

/** Return the model of a path in a scope, or null if the path cannot be written. */
function modelOf(scope, path) {
  if (!path || path.root === "index") return null;
  const isItem = path.root === "item";
  if (isItem ? scope === page : !path.parts.length) return null;
  const key = `${isItem ? `#${scope.id}` : ""}${toPointer(path.parts)}`;
  if (!models.has(key)) {
    models.set(key, new Model(path.parts, isItem ? scope : null));
    if (isItem) scope.modelKeys.add(key);
  }
  return models.get(key);
}

/** End the models of a row whose item is gone. */
function closeModels(row) {
  for (const key of row.modelKeys) {
    models.get(key).close();
    models.delete(key);
  }
  if (row.modelKeys.size) settleWaiters();
}

/** Return the model whose entry at this place is in conflict. Rows may have been saved there before it. */
const findConflict = (pointer) => (
  [...models.values()].find(({ isConflict, sentPointer }) => isConflict && sentPointer === pointer)
);

// --- fields ------------------------------------------------------------------------------------------------

const isField = (element) => element.matches("input, select, textarea");

/** Return the value of a field; `MISSING` for an incomplete number, or an empty field that requires one. */
function entryOf(field, stored, isNumber = typeof stored === "number") {
  if (field.type === "checkbox") {
    if (!Array.isArray(stored)) return field.checked;
    const others = stored.filter((value) => value !== field.value);
    return field.checked ? [...others, field.value] : others;
  }
  if (field.type === "select-multiple") return [...field.selectedOptions].map((option) => option.value);
  const isNumberField = field.type === "number" || field.type === "range";
  if (!isNumber && !isNumberField) return field.value;
  if (field.value.trim() === "") {
    return field.validity.badInput || (field.required && stored !== null) ? MISSING : null;
  }
  if (NUMBER.test(field.value)) return Number(field.value);
  // A text may replace a removed number, but the beginning of a number is an incomplete entry.
  const mayBeText = stored === null && !isNumberField && !NUMBER_PREFIX.test(field.value);
  return mayBeText ? field.value : MISSING;
}

function showValue(field, value) {
  if (field.type === "checkbox") {
    field.checked = Array.isArray(value) ? value.includes(field.value) : value === true;
  } else if (field.type === "radio") field.checked = asText(value) === field.value;
  else if (field.type === "select-multiple") {
    for (const option of field.options) {
      option.selected = Array.isArray(value) && value.includes(option.value);
    }
  } else if (field.type !== "file") setText(field, asText(value));
}

/** Replace the text of a field and keep the caret at the same place in the unchanged part. */
function setText(field, text) {
  const before = field.value;
  if (before === text) return;
  const hasCaret = field === document.activeElement && typeof field.selectionStart === "number";
  const { selectionStart: start, selectionEnd: end, selectionDirection: direction } = field;
  field.value = text;
  if (!hasCaret) return;
  const limit = Math.min(before.length, text.length);
  let head = 0;
  while (head < limit && before[head] === text[head]) head += 1;
  let tail = 0;
  while (tail < limit - head && before[before.length - 1 - tail] === text[text.length - 1 - tail]) tail += 1;
  const newOffset = (offset) => {
    if (offset <= head && head > 0) return offset;
    if (offset >= before.length - tail && tail > 0) return offset + text.length - before.length;
    for (const radius of [16, 8, 4, 2, 1]) { // changed on both sides: search for the surrounding letters
      const left = before.slice(Math.max(0, offset - radius), offset);
      const index = text.indexOf(left + before.slice(offset, offset + radius));
      if (index >= 0) return index + left.length;
    }
    return text.length - tail;
  };
  field.setSelectionRange(newOffset(start), newOffset(end), direction);
}

const TEXT_FIELD = "textarea, input:not([type=checkbox], [type=radio], [type=range], [type=color])";

/** Make a field read-only if the page may not write its value. */
function setLocked(field, isLocked) {
  field.toggleAttribute("data-gsv-shut", isLocked);
  if (field.matches(TEXT_FIELD)) field.readOnly = isLocked;
  else field.disabled = isLocked;
}

const composing = new WeakSet();

function showModel(field, scope, path) {
  const model = isField(field) ? modelOf(scope, path) : null;
  if (!model) return;
  model.updateType();
  const { parts } = model;
  const isWritable = !known.info || known.info.writable.some((prefix) => startsWith(parts, prefix));
  if (isWritable === field.hasAttribute("data-gsv-shut")) setLocked(field, !isWritable);
  field.toggleAttribute("data-gsv-unsaved", model.isDirty);
  field.toggleAttribute("data-gsv-conflict", model.isConflict);
  field.toggleAttribute("data-gsv-problem", model.problem !== null);
  // Do not change the focused field while its entry is unsaved, or only spelled differently ("1.50").
  const isSameEntry = () => isEqual(entryOf(field, model.value, model.isNumber), model.value);
  const isInUse = field === document.activeElement && (model.isDirty || isSameEntry());
  if (!isInUse && !composing.has(field) && field.dataset.gsvHalf === undefined) showValue(field, model.value);
}

function handleEntry(field, isTyping) {
  if (!isField(field) || (field.type === "radio" && !field.checked)) return;
  const model = modelOf(scopeOf(field), parsePath(field.dataset.gsvModel));
  if (!model) return;
  model.updateType();
  const value = entryOf(field, model.stored, model.isNumber);
  field.toggleAttribute("data-gsv-half", value === MISSING);
  if (value === MISSING) return;
  const isEmpty = model.stored === null && value === "";
  const isNew = model.isDirty ? !isEqual(model.value, value) : !isEqual(model.stored, value) && !isEmpty;
  if (isNew || model.problem) model.enter(value, isTyping);
  if (!isTyping) model.send();
  afterState();
}

const fieldOf = (event) => (
  event.target instanceof Element ? event.target.closest("[data-gsv-model]") : null
);

document.addEventListener("compositionstart", (event) => {
  if (fieldOf(event)) composing.add(fieldOf(event));
}, true);
document.addEventListener("compositionend", (event) => {
  const field = fieldOf(event);
  composing.delete(field);
  if (field) handleEntry(field, true);
}, true);
document.addEventListener("input", (event) => {
  const field = fieldOf(event);
  const isTyping = field?.matches("textarea, input:not([type=checkbox], [type=radio])");
  if (field && !event.isComposing) handleEntry(field, isTyping);
}, true);
document.addEventListener("change", (event) => {
  if (fieldOf(event)) handleEntry(fieldOf(event), false);
}, true);
document.addEventListener("focusout", (event) => {
  const field = fieldOf(event);
  if (!field) return;
  composing.delete(field);
  field.removeAttribute("data-gsv-half");
  for (const model of models.values()) model.send();
  afterState();
}, true);

// --- waiting until all entries are saved -------------------------------------------------------------------

const waiters = new Set();
let isDisconnected = false;
const unsavedModels = () => [...models.values()].filter((model) => model.isDirty);

function setConnected(isLive) {
  isDisconnected = !isLive;
  settleWaiters();
}

/** Wait until all entries are saved. Rejects if one needs the person's decision or cannot be saved now. */
function allSaved() {
  for (const model of models.values()) model.send();
  if (!unsavedModels().length) return Promise.resolve();
  return new Promise((resolve, reject) => {
    waiters.add({ resolve, reject });
    settleWaiters();
  });
}

function settleWaiters() {
  const unsaved = unsavedModels();
  const stuck = unsaved.find((model) => model.isConflict || model.problem);
  if (unsaved.length && !stuck && !isDisconnected) return;
  for (const waiter of waiters) {
    if (unsaved.length) waiter.reject(unsavedError(stuck));
    else waiter.resolve();
  }
  waiters.clear();
}

function unsavedError(stuck) {
  if (!stuck) {
    const message = "There is no connection to the server.";
    return new RequestRefused({ name: "UNAVAILABLE", code: 503, message });
  }
  const reason = stuck.problem ?? "another user changed it too.";
  const message = `state.${stuck.parts.join(".")} is not saved: ${reason}`;
  return new RequestRefused({ name: "NOT_SAVED", code: 409, message });
}
