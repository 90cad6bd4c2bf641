// The input that an element sends with its action.

import { attributesOf } from "./attributes";
import { closestTo, elementsOf, isMatch } from "./dom";
import { entryOf, isField } from "./fields";
import { isUnsafe } from "./paths";
import { scopeOf } from "./scopes";
import { MISSING } from "./values";

const NUMBER_FIELD = "input[type=number], input[type=range]";
// A box with a `value` of its own sends that text, as several boxes of one name do.
const SWITCH = "input[type=checkbox][name]:not([value], :disabled)";

/** Return the entry of a field as its `data-input-type`, or as its own type says, and any other as text. */
export function typedEntry(field: Element | undefined, text: string): unknown {
  const type = field instanceof HTMLElement ? field.dataset.inputType : undefined;
  if (!type && field && isMatch(field, NUMBER_FIELD)) return text === "" ? MISSING : Number(text);
  if (type === "boolean") return text === "true";
  if (type === "number" || type === "integer") return text.trim() === "" ? null : Number(text);
  if (type !== "json") return text;
  try {
    return JSON.parse(text);
  } catch {
    return text; // the tool's schema decides
  }
}

const isSwitch = (field: Element): field is HTMLInputElement => isMatch(field, SWITCH);
const nameOf = (field: Element): string => ("name" in field ? String(field.name) : "");

/** Yield the name and the value of each field of a form. */
function* formInput(form: HTMLFormElement): Iterable<[string, unknown]> {
  const data = new FormData(form);
  const fields = [...elementsOf(form)];
  const named = (name: string): Element[] => fields.filter((field) => nameOf(field) === name);
  for (const name of new Set(data.keys())) {
    const values = data.getAll(name).filter((value) => typeof value === "string");
    const [first] = values;
    if (first !== undefined) yield [name, values.length > 1 ? values : typedEntry(named(name)[0], first)];
  }
  for (const box of fields.filter(isSwitch)) if (named(box.name).length === 1) yield [box.name, box.checked];
}

function formOf(element: Element): HTMLFormElement | null {
  if (element instanceof HTMLFormElement) return element;
  const form = "form" in element ? element.form : null;
  const around = form ?? closestTo(element, "form");
  return around instanceof HTMLFormElement ? around : null;
}

/**
 * Return the input of an action: the fields of the surrounding form, then of the element the texts
 * `data-gsv-input-NAME` and the values at the paths `data-gsv-value-NAME`.
 */
export function inputOf(element: Element, submitter: HTMLElement | null): Record<string, unknown> {
  const input: Record<string, unknown> = {};
  const put = (name: string, value: unknown): void => {
    if (value !== MISSING && !isUnsafe(name)) input[name] = value;
  };
  const form = formOf(element);
  if (form) for (const [name, value] of formInput(form)) put(name, value);
  if (submitter && nameOf(submitter) && "value" in submitter) put(nameOf(submitter), submitter.value);
  if (!form && isField(element)) put(element.name || "value", entryOf(element, null));
  const scope = scopeOf(element);
  for (const { kind, name, value, path } of attributesOf(element)) {
    if (kind === "input") put(name, value);
    if (kind === "value" && path) put(name, scope.valueAt(path));
  }
  return input;
}
