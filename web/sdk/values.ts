// Values of the state: JSON that a page only reads. Pure functions.

/** The value of a path that leads nowhere. */
export const MISSING: unique symbol = Symbol("missing");

export const isContainer = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null;

export const isObject = (value: unknown): value is Record<string, unknown> =>
  isContainer(value) && !Array.isArray(value);

/** Return whether a value counts as true: empty texts, lists and objects do not. */
export function isTruthy(value: unknown): boolean {
  if (value === MISSING || !value) return false;
  return typeof value !== "object" || Object.keys(value).length > 0;
}

/** Return a value as text: objects as JSON, missing values and null as an empty text. */
export function asText(value: unknown): string {
  if (value === MISSING || value === null || value === undefined) return "";
  return typeof value === "object" ? JSON.stringify(value, null, 2) : String(value);
}

export function isEqual(first: unknown, second: unknown): boolean {
  if (first === second) return true;
  if (!isContainer(first) || !isContainer(second)) return false;
  if (Array.isArray(first) !== Array.isArray(second)) return false;
  const names = Object.keys(first);
  return (
    names.length === Object.keys(second).length &&
    names.every((name) => Object.hasOwn(second, name) && isEqual(first[name], second[name]))
  );
}

export function deepFreeze<Value>(value: Value): Value {
  if (isContainer(value) && !Object.isFrozen(value)) {
    Object.freeze(value);
    Object.values(value).forEach(deepFreeze);
  }
  return value;
}

const NUMBER = /^\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?\s*$/i;
const NUMBER_PREFIX = /^\s*[+-]?\d*\.?\d*(?:e[+-]?)?\s*$/i;

export const isNumeric = (text: string): boolean => NUMBER.test(text);
/** Return whether a text is the beginning of a number, such as `-` or `1e`. */
export const isNumericPrefix = (text: string): boolean => NUMBER_PREFIX.test(text);
