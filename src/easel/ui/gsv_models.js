// `data-gsv-model`: a field and a place in the state, tied both ways.
//
// What a person types is theirs until it is stored: as long as it is not, no change from elsewhere is written over it. Each entry goes out
// with what the field showed before; if the state has something else there by then, nothing is stored and the shell asks the person. So
// neither side's change is lost unseen.

const PAUSE_MS = 250; // after the last key
const LONGEST_PAUSE_MS = 1_000; // of somebody who does not stop typing
const NONE = Symbol("none");
const NUMBER = /^\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?\s*$/i;
const HALF_A_NUMBER = /^\s*[+-]?\d*\.?\d*(?:e[+-]?)?\s*$/i;

const models = new Map(); // by pointer

class Model {
  draft = NONE; // typed, and not sent
  sending = NONE; // sent, and not answered
  base = null; // what the state had when the typing began
  isConflict = false;
  problem = null;
  isNumber = false; // whether a text that is entered here is a number
  #timer = null;
  #since = 0;

  constructor(parts) {
    this.parts = parts;
    this.pointer = pointer(parts);
  }

  get stored() {
    const value = found(known.state, this.parts);
    return value === MISSING ? null : value;
  }

  get isDirty() { return this.draft !== NONE || this.sending !== NONE; }

  get value() {
    if (this.draft !== NONE) return this.draft;
    return this.sending === NONE ? this.stored : this.sending;
  }

  /** What the state has there says what an entry is; while it has nothing, or somebody is at it, what it had before does. */
  look() { if (!this.isDirty && this.stored !== null) this.isNumber = typeof this.stored === "number"; }

  enter(value, isTyping) {
    if (!this.isDirty) this.base = this.stored;
    this.draft = value;
    this.problem = null;
    clearTimeout(this.#timer);
    this.#since ||= Date.now();
    const pause = isTyping ? Math.max(0, Math.min(PAUSE_MS, this.#since + LONGEST_PAUSE_MS - Date.now())) : 0;
    this.#timer = setTimeout(() => this.send(), pause);
  }

  async send() {
    clearTimeout(this.#timer);
    this.#since = 0;
    if (this.draft === NONE || this.sending !== NONE || this.isConflict || this.problem) return;
    [this.sending, this.draft] = [this.draft, NONE];
    try {
      await ask("input", { pointer: this.pointer, value: this.sending, was: this.base });
      this.base = this.sending;
    } catch (problem) {
      if (this.draft === NONE) this.draft = this.sending;
      this.isConflict = problem.name === "INPUT_CONFLICT";
      if (!this.isConflict) this.problem = problem.message;
    }
    const sent = this.sending;
    this.sending = NONE;
    if (!this.isConflict && !this.problem && this.draft !== NONE && isSame(this.draft, sent)) this.draft = NONE;
    if (this.draft !== NONE) this.send();
    afterState();
    settledMaybe();
  }

  /** The person has decided between their own entry and what the state has. */
  resolve(keep) {
    this.isConflict = false;
    if (keep === "mine") this.base = this.stored;
    else this.draft = NONE;
    this.send();
    afterState();
    settledMaybe();
  }
}

function modelOf(parts) {
  const name = pointer(parts);
  if (!models.has(name)) models.set(name, new Model(parts));
  return models.get(name);
}

// --- fields -----------------------------------------------------------------------------------------------------------

const isField = (element) => element.matches("input, select, textarea");

/** What a field says; `MISSING` while that is nothing yet, as half a number, or none where one is required. */
function entryOf(field, stored, isNumber = typeof stored === "number") {
  if (field.type === "checkbox") {
    if (!Array.isArray(stored)) return field.checked;
    const others = stored.filter((one) => one !== field.value);
    return field.checked ? [...others, field.value] : others;
  }
  if (field.type === "select-multiple") return [...field.selectedOptions].map((option) => option.value);
  if (!isNumber && field.type !== "number" && field.type !== "range") return field.value;
  if (field.value.trim() === "") return field.validity.badInput || (field.required && stored !== null) ? MISSING : null;
  if (NUMBER.test(field.value)) return Number(field.value);
  // Where a number was and nothing is any more, text may come too; a number that is not whole yet waits for its rest.
  const mayBeText = stored === null && field.type !== "number" && field.type !== "range" && !HALF_A_NUMBER.test(field.value);
  return mayBeText ? field.value : MISSING;
}

function show(field, value) {
  if (field.type === "checkbox") field.checked = Array.isArray(value) ? value.includes(field.value) : value === true;
  else if (field.type === "radio") field.checked = asText(value) === field.value;
  else if (field.type === "select-multiple") for (const option of field.options) option.selected = Array.isArray(value) && value.includes(option.value);
  else if (field.type !== "file") setText(field, asText(value));
}

/** Another text, with the caret where it was in what did not change. */
function setText(field, text) {
  const before = field.value;
  if (before === text) return;
  const hasCaret = field === document.activeElement && typeof field.selectionStart === "number";
  const { selectionStart: start, selectionEnd: end, selectionDirection: direction } = field;
  field.value = text;
  if (!hasCaret) return;
  const most = Math.min(before.length, text.length);
  let head = 0;
  while (head < most && before[head] === text[head]) head += 1;
  let tail = 0;
  while (tail < most - head && before[before.length - 1 - tail] === text[text.length - 1 - tail]) tail += 1;
  const moved = (place) => {
    if (place <= head && head > 0) return place;
    if (place >= before.length - tail && tail > 0) return place + text.length - before.length;
    for (const around of [16, 8, 4, 2, 1]) { // changed on both sides: where the same letters stand around it
      const left = before.slice(Math.max(0, place - around), place);
      const there = text.indexOf(left + before.slice(place, place + around));
      if (there >= 0) return there + left.length;
    }
    return text.length - tail;
  };
  field.setSelectionRange(moved(start), moved(end), direction);
}

/** What may not be written is not typed into either. */
function shut(field, is) {
  field.toggleAttribute("data-gsv-shut", is);
  if (field.matches("textarea, input:not([type=checkbox], [type=radio], [type=range], [type=color])")) field.readOnly = is;
  else field.disabled = is;
}

const composing = new WeakSet();

function showModel(field) {
  const parts = parsed(field.dataset.gsvModel);
  if (!parts?.length || !isField(field)) return;
  const model = modelOf(parts);
  model.look();
  const isOpen = !known.info || known.info.writable.some((place) => begins(parts, place));
  if (isOpen === field.hasAttribute("data-gsv-shut")) shut(field, !isOpen);
  field.toggleAttribute("data-gsv-unsaved", model.isDirty);
  field.toggleAttribute("data-gsv-conflict", model.isConflict);
  field.toggleAttribute("data-gsv-problem", model.problem !== null);
  // Nothing is put under the fingers of who types: neither over what is not stored yet, nor another spelling of the same ("1.50").
  const isTheirs = field === document.activeElement && (model.isDirty || isSame(entryOf(field, model.value, model.isNumber), model.value));
  if (!isTheirs && !composing.has(field) && field.dataset.gsvHalf === undefined) show(field, model.value);
}

function entered(field, isTyping) {
  const parts = parsed(field.dataset.gsvModel);
  if (!parts?.length || !isField(field) || (field.type === "radio" && !field.checked)) return;
  const model = modelOf(parts);
  model.look();
  const value = entryOf(field, model.stored, model.isNumber);
  field.toggleAttribute("data-gsv-half", value === MISSING);
  if (value === MISSING) return;
  const isNews = model.isDirty ? !isSame(model.value, value) : !isSame(model.stored, value) && !(model.stored === null && value === "");
  if (isNews || model.problem) model.enter(value, isTyping);
  if (!isTyping) model.send();
  afterState();
}

const fieldOf = (event) => (event.target instanceof Element ? event.target.closest("[data-gsv-model]") : null);

document.addEventListener("compositionstart", (event) => { if (fieldOf(event)) composing.add(fieldOf(event)); }, true);
document.addEventListener("compositionend", (event) => {
  const field = fieldOf(event);
  composing.delete(field);
  if (field) entered(field, true);
}, true);
document.addEventListener("input", (event) => {
  const field = fieldOf(event);
  if (field && !event.isComposing) entered(field, field.matches("textarea, input:not([type=checkbox], [type=radio])"));
}, true);
document.addEventListener("change", (event) => { if (fieldOf(event)) entered(fieldOf(event), false); }, true);
document.addEventListener("focusout", (event) => {
  const field = fieldOf(event);
  if (!field) return;
  composing.delete(field);
  field.removeAttribute("data-gsv-half");
  for (const model of models.values()) model.send();
  afterState();
}, true);

// --- waiting until all is stored --------------------------------------------------------------------------------------

const settling = new Set();
let isAway = false; // there is no connection: what is entered waits for the next one, and nothing else does
const unsettled = () => [...models.values()].filter((model) => model.isDirty);

function linked(isLive) {
  isAway = !isLive;
  settledMaybe();
}

/** When everything that was entered is stored; refused where something is left that a person has to see to, or that cannot be stored now. */
function settled() {
  for (const model of models.values()) model.send();
  if (!unsettled().length) return Promise.resolve();
  return new Promise((resolve, reject) => {
    settling.add({ resolve, reject });
    settledMaybe();
  });
}

function settledMaybe() {
  const left = unsettled();
  const stuck = left.find((model) => model.isConflict || model.problem);
  if (left.length && !stuck && !isAway) return;
  for (const one of settling) {
    if (!left.length) one.resolve();
    else if (!stuck) one.reject(new Refused({ name: "UNAVAILABLE", code: 503, message: "There is no connection to the server." }));
    else one.reject(new Refused({ name: "NOT_SAVED", code: 409, message: `state.${stuck.parts.join(".")} is not saved: ${stuck.problem ?? "somebody else changed it too."}` }));
  }
  settling.clear();
}
