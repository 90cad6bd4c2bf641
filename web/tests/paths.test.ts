import { expect, test } from "vitest";
import { parseKey, parsePath, resolvePath, startsWith, toPointer } from "../sdk/paths";
import { MISSING } from "../sdk/values";

test.each([
  ["state", { root: "state", parts: [] }],
  [" state.deploy.status ", { root: "state", parts: ["deploy", "status"] }],
  ["item.straße", { root: "item", parts: ["straße"] }],
  ["index", { root: "index", parts: [] }],
  ["index.length", null],
  ["deploy.status", null],
  ["state..status", null],
  ["state.__proto__", null],
  ["state.constructor.name", null],
  ["state.a b", null],
])("the path %j is parsed", (text, path) => {
  expect(parsePath(text)).toEqual(path);
});

test.each([
  ["id", ["id"]],
  ["item.id", ["id"]],
  ["item", []],
  ["item.__proto__", null],
])("the key %j is parsed", (text, parts) => {
  expect(parseKey(text)).toEqual(parts);
});

test.each([
  [["list", "1", "name"], "b"],
  [["list", "01", "name"], MISSING],
  [["list", "length"], MISSING],
  [["list", "map"], MISSING],
  [["text", "length"], MISSING],
  [["toString"], MISSING],
  [["empty"], null],
  [["empty", "more"], MISSING],
])("a path %j leads only to own members of plain data", (parts, expected) => {
  const state = { list: [{ name: "a" }, { name: "b" }], text: "abc", empty: null };
  expect(resolvePath(state, parts)).toBe(expected);
});

test("a pointer escapes the signs of its syntax", () => {
  expect(toPointer(["a/b", "c~d", "0"])).toBe("/a~1b/c~0d/0");
});

test("a path starts with itself and with the paths above it", () => {
  expect(startsWith(["a", "b"], [])).toBe(true);
  expect(startsWith(["a", "b"], ["a", "b"])).toBe(true);
  expect(startsWith(["a"], ["a", "b"])).toBe(false);
});
