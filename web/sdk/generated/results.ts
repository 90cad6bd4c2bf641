// Lists, tables and the saved results of actions.

import type { Parts } from "../paths";
import { asText, isContainer, isObject } from "../values";
import { create, toLabel } from "./elements";
import { isBindable, isResult } from "./spec";

const MAX_ROWS = 200;
const MAX_RESULTS = 20; // shown of a list of results
const TEMPLATE = Symbol("template"); // in place of any item of a list

type Members = Record<string, unknown>;

const columnsOf = (rows: readonly Members[]): string[] => [
  ...new Set(rows.slice(0, MAX_ROWS).flatMap((row) => Object.keys(row))),
];
const hasColumns = (values: readonly unknown[]): values is readonly Members[] => values.every(isObject);

/** Return elements for the items of a list: one that the SDK repeats or, without a usable path, all. */
function repeat(
  values: readonly unknown[],
  path: Parts | null,
  make: (item: unknown) => HTMLElement,
  names: Parts = [],
): HTMLElement[] {
  if (!path || !isBindable([...path, ...names])) return values.slice(0, MAX_ROWS).map(make);
  const template = make(TEMPLATE);
  template.dataset.gsvEach = `state.${path.join(".")}`;
  template.dataset.gsvLimit = String(MAX_ROWS);
  return [template];
}

/** Return an element with a value of an item, or, for the SDK, with the path of the value. */
function itemValue(tag: "td" | "li", item: unknown, names: Parts): HTMLElement {
  const node = create(tag, tag === "li" ? "value" : "");
  if (item === TEMPLATE) node.dataset.gsvText = ["item", ...names].join(".");
  else node.append(asText(names.reduce(memberOf, item)));
  return node;
}

/** Return an own member of a value, or null. */
export const memberOf = (value: unknown, name: string): unknown =>
  isContainer(value) && Object.hasOwn(value, name) ? value[name] : null;

function createTable(rows: readonly Members[], path: Parts | null): HTMLElement {
  const columns = columnsOf(rows);
  const head = create("tr", "", ...columns.map((name) => create("th", "", toLabel(name))));
  const bodyRow = (row: unknown): HTMLElement =>
    create("tr", "", ...columns.map((name) => itemValue("td", row, [name])));
  const body = create("tbody", "", ...repeat(rows, path, bodyRow, columns));
  return create("div", "table", create("table", "", create("thead", "", head), body));
}

/** Return a list. `path` is its place in the state, or null if it is a part of a result. */
export function createList(values: readonly unknown[], path: Parts | null): HTMLElement {
  if (!values.length) return create("p", "faint", "Nothing yet.");
  if (values.every(isResult)) {
    return create("div", "", ...values.slice(-MAX_RESULTS).reverse().map(createResult));
  }
  const node = hasColumns(values)
    ? createTable(values, path)
    : create("ul", "", ...repeat(values, path, (item) => itemValue("li", item, [])));
  if (values.length <= MAX_ROWS) return node;
  return create("div", "", node, create("p", "faint", `The first ${MAX_ROWS} of ${values.length}.`));
}

/**
 * Return, as JSON, the parts of a list that the SDK does not follow: a change of them needs a new element.
 * Null if the SDK does not repeat the list.
 */
export function shapeOf(values: readonly unknown[], path: Parts): string | null {
  if (!values.length || values.every(isResult)) return null;
  const columns = hasColumns(values) ? columnsOf(values) : null;
  if (!isBindable([...path, ...(columns ?? [])])) return null;
  return JSON.stringify([columns, Math.max(values.length, MAX_ROWS)]);
}

const toDate = (value: unknown): Date =>
  new Date(typeof value === "string" || typeof value === "number" ? value : Number.NaN);

export function createResult(value: unknown): HTMLElement {
  if (value === null || value === undefined) return create("p", "faint", "Not run yet.");
  if (!isResult(value)) {
    return Array.isArray(value) ? createList(value, null) : create("pre", "value", asText(value));
  }
  const { result } = value;
  const finishedAt = toDate(value.finishedAt);
  const hasOutput = isObject(result) && typeof result.output === "string";
  const output = hasOutput ? asText(result.output) : asText(result);
  const time = Number.isNaN(finishedAt.getTime()) ? "" : `finished ${finishedAt.toLocaleString()}`;
  const notes = resultNotes(result).flatMap((note) => [create("span", "bad", note), " · "]);
  return create("div", "", create("pre", "value", output), create("p", "faint", ...notes, time));
}

/** Return notes on a command's result that its output does not show: a failure, or that the output is cut. */
export function resultNotes(value: unknown): string[] {
  if (!isObject(value) || !Object.hasOwn(value, "output")) return [];
  const { exit_code: code, stopped, reason, truncated } = value;
  const notes: string[] = [];
  if (stopped) notes.push(typeof reason === "string" ? reason : `stopped: ${asText(stopped)}`);
  else if (typeof code === "number" && code !== 0) notes.push(`exit code ${code}`);
  return truncated === true ? [...notes, "the output was cut"] : notes;
}
