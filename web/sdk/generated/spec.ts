// The paths that the server writes into the generated page: those of writable values, of results and of
// numbers.

import { isWord, type Parts, startsWith } from "../paths";
import { isNumeric, isObject } from "../values";

interface SpecPaths {
  readonly writable: readonly Parts[];
  readonly results: readonly Parts[];
  readonly saves: Readonly<Record<string, Parts>>;
  readonly numbers: readonly Parts[];
}

// The server writes this JSON: its members are as SpecPaths declares them.
const paths: SpecPaths = JSON.parse(document.getElementById("paths")?.textContent ?? "{}");

const LONG_TEXT = 80; // characters; a longer text gets a field with several lines
const MAX_DEPTH = 3; // deeper values are shown as JSON
export const FIELD_KINDS = ["check", "number", "long", "short"] as const;

export type FieldKind = (typeof FIELD_KINDS)[number];
/** How a value is drawn. */
export type Kind = FieldKind | "result" | "list" | "json" | "members" | "text";

/** A saved result of an action. */
export interface Result extends Record<string, unknown> {
  readonly ok: true;
  readonly result: unknown;
  readonly finishedAt: unknown;
}

const includes = (all: readonly Parts[], path: Parts): boolean =>
  all.some((other) => other.length === path.length && startsWith(path, other));

export const isBindable = (path: Parts): boolean => path.every(isWord);
export const isResultPath = (path: Parts): boolean => includes(paths.results, path);
export const isDeclaredNumber = (path: Parts): boolean => includes(paths.numbers, path);
/** Return where an action saves its result, or null. */
export const placeOfResult = (actionId: string): Parts | null =>
  Object.hasOwn(paths.saves, actionId) ? (paths.saves[actionId] ?? null) : null;
export const isResult = (value: unknown): value is Result =>
  isObject(value) && value.ok === true && "result" in value && "finishedAt" in value;
export const isField = (kind: Kind): kind is FieldKind => FIELD_KINDS.some((field) => field === kind);

const isWritable = (path: Parts): boolean =>
  isBindable(path) && paths.writable.some((prefix) => startsWith(path, prefix));
const isLongText = (value: unknown): boolean =>
  typeof value === "string" && (value.length > LONG_TEXT || value.includes("\n"));

/** Return how a value is drawn. An empty value keeps the kind of the value before it, or that of the spec. */
export function kindOf(value: unknown, path: Parts, depth: number, before: Kind | undefined): Kind {
  if (isResultPath(path) || isResult(value)) return "result";
  if (Array.isArray(value)) return "list";
  if (isObject(value)) return depth >= MAX_DEPTH ? "json" : "members";
  if (!isWritable(path)) return "text";
  if (typeof value === "boolean") return "check";
  const isNumericText = value === null || (typeof value === "string" && isNumeric(value));
  if (typeof value === "number" || (isDeclaredNumber(path) && isNumericText)) return "number";
  if (value === null && before && isField(before)) return before;
  return isLongText(value) ? "long" : "short";
}
