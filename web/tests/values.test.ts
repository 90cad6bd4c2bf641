import { expect, test } from "vitest";
import { asText, deepFreeze, isEqual, isNumeric, isNumericPrefix, isTruthy, MISSING } from "../sdk/values";

test.each([
  [0, false],
  ["", false],
  [[], false],
  [{}, false],
  [null, false],
  [MISSING, false],
  ["no", true],
  [[0], true],
  [{ a: null }, true],
])("%j counts as %s", (value, expected) => {
  expect(isTruthy(value)).toBe(expected);
});

test.each([
  [MISSING, ""],
  [null, ""],
  [undefined, ""],
  [false, "false"],
  [1.5, "1.5"],
  [["a"], '[\n  "a"\n]'],
])("%j is shown as %j", (value, text) => {
  expect(asText(value)).toBe(text);
});

test.each([
  [{ a: [1, { b: null }] }, { a: [1, { b: null }] }, true],
  [{ a: 1 }, { a: 1, b: 2 }, false],
  [{ a: undefined }, { b: undefined }, false],
  [[1], { 0: 1 }, false],
  [null, {}, false],
  ["1", 1, false],
])("%j and %j are equal: %s", (first, second, expected) => {
  expect(isEqual(first, second)).toBe(expected);
});

test("a frozen value is frozen at every depth", () => {
  const value = deepFreeze({ list: [{ name: "a" }] });
  expect(() => Object.assign(value.list[0] ?? {}, { name: "b" })).toThrow(TypeError);
});

test.each([
  ["12", true, true],
  [" -1.50 ", true, true],
  ["1e3", true, false],
  ["1e", false, true],
  ["-", false, true],
  ["twelve", false, false],
])("%j is a number: %s, the beginning of one: %s", (text, number, prefix) => {
  expect(isNumeric(text)).toBe(number);
  if (!number) expect(isNumericPrefix(text)).toBe(prefix);
});
