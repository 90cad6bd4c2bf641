// The fields of `data-gsv-model`: the entry of a field, and how it shows the value of its model.

import { known } from "./bridge";
import { type ModelRow, modelOf } from "./models";
import { type Path, startsWith } from "./paths";
import { asText, isEqual, isNumeric, isNumericPrefix, MISSING } from "./values";

export type Field = HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement;

const FIELD = "input, select, textarea";
const TEXT_FIELD = "textarea, input:not([type=checkbox], [type=radio], [type=range], [type=color])";
const composing = new WeakSet<Element>();

export const isField = (element: Element): element is Field => element.matches(FIELD);

export const isCheckbox = (field: Field): field is HTMLInputElement => field.type === "checkbox";
export const isRadio = (field: Field): field is HTMLInputElement => field.type === "radio";
const isMultiple = (field: Field): field is HTMLSelectElement => field.type === "select-multiple";
const isSingleSelect = (field: Field): field is HTMLSelectElement => field.type === "select-one";

/** Return the value of a field; `MISSING` for an incomplete number, or an empty field that requires one. */
export function entryOf(field: Field, stored: unknown, isNumber = typeof stored === "number"): unknown {
  if (isCheckbox(field)) {
    if (!Array.isArray(stored)) return field.checked;
    const others = stored.filter((value) => value !== field.value);
    return field.checked ? [...others, field.value] : others;
  }
  if (isMultiple(field)) return [...field.selectedOptions].map((option) => option.value);
  const isNumberField = field.type === "number" || field.type === "range";
  if (!isNumber && !isNumberField) return field.value;
  if (field.value.trim() === "") {
    return field.validity.badInput || (field.required && stored !== null) ? MISSING : null;
  }
  if (isNumeric(field.value)) return Number(field.value);
  // A text may replace a removed number, but the beginning of a number is an incomplete entry.
  const mayBeText = stored === null && !isNumberField && !isNumericPrefix(field.value);
  return mayBeText ? field.value : MISSING;
}

export function showValue(field: Field, value: unknown): void {
  if (isCheckbox(field)) {
    field.checked = Array.isArray(value) ? value.includes(field.value) : value === true;
  } else if (isRadio(field)) field.checked = asText(value) === field.value;
  else if (isMultiple(field)) {
    for (const option of field.options) {
      option.selected = Array.isArray(value) && value.includes(option.value);
    }
  } else if (field.type !== "file") setText(field, asText(value));
}

/** Replace the text of a field and keep the caret at the same place in the unchanged part. */
function setText(field: Field, text: string): void {
  const before = field.value;
  if (before === text) return;
  if (isSingleSelect(field)) {
    field.value = text;
    return;
  }
  const { selectionStart: start, selectionEnd: end, selectionDirection: direction } = field;
  field.value = text;
  if (field !== document.activeElement || start === null || end === null) return;
  const moved = (offset: number): number => moveOffset(offset, before, text);
  field.setSelectionRange(moved(start), moved(end), direction ?? undefined);
}

/** Return where an offset in one text is in the next one. */
export function moveOffset(offset: number, before: string, text: string): number {
  const limit = Math.min(before.length, text.length);
  let head = 0;
  while (head < limit && before[head] === text[head]) head += 1;
  let tail = 0;
  while (tail < limit - head && before.at(-1 - tail) === text.at(-1 - tail)) tail += 1;
  if (offset <= head && head > 0) return offset;
  if (offset >= before.length - tail && tail > 0) return offset + text.length - before.length;
  for (const radius of [16, 8, 4, 2, 1]) {
    // Changed on both sides: search for the surrounding letters.
    const left = before.slice(Math.max(0, offset - radius), offset);
    const index = text.indexOf(left + before.slice(offset, offset + radius));
    if (index >= 0) return index + left.length;
  }
  return text.length - tail;
}

/** Make a field read-only if the page may not write its value. */
function setLocked(field: Field, isLocked: boolean): void {
  field.toggleAttribute("data-gsv-shut", isLocked);
  if (field.matches(TEXT_FIELD) && "readOnly" in field) field.readOnly = isLocked;
  else field.disabled = isLocked;
}

export function showModel(field: Element, row: ModelRow | null, path: Path | null): void {
  const model = isField(field) ? modelOf(row, path) : null;
  if (!model || !isField(field)) return;
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

export const beginComposition = (field: Element): WeakSet<Element> => composing.add(field);
export const endComposition = (field: Element): boolean => composing.delete(field);
