// @vitest-environment happy-dom

import { expect, test } from "vitest";
import { entryOf, moveOffset, showValue } from "../sdk/fields";
import { MISSING } from "../sdk/values";
import { createField } from "./elements";

test.each([
  ['<input value="a">', null, "a"],
  ['<input value="12">', 3, 12],
  ['<input value="1e">', 3, MISSING],
  ['<input value="-">', null, "-"],
  ['<input value="">', 3, null],
  ['<input value="" required>', 3, MISSING],
  ['<input value="twelve">', 3, MISSING],
  ['<input type="number" value="12">', null, 12],
  ['<input type="checkbox" checked>', null, true],
  ['<input type="checkbox" value="b" checked>', ["a"], ["a", "b"]],
  ['<input type="checkbox" value="b">', ["a", "b"], ["a"]],
])("the entry of %s over %j is %j", (html, stored, entry) => {
  expect(entryOf(createField(html), stored)).toEqual(entry);
});

test.each([
  ["-", MISSING],
  ["twelve", "twelve"],
])("over a removed number %j is %j", (text, entry) => {
  expect(entryOf(createField(`<input value="${text}">`), null, true)).toBe(entry);
});

test("a box shows whether its value is in the list", () => {
  const box = createField('<input type="checkbox" value="b">');
  showValue(box, ["a", "b"]);
  expect(box.checked).toBe(true);
  showValue(box, ["a"]);
  expect(box.checked).toBe(false);
  showValue(box, "true");
  expect(box.checked).toBe(false);
});

test.each([
  ["inserted before the caret", "hello world", "well, hello world", 8, 14],
  ["inserted after the caret", "hello", "hello world", 3, 3],
  ["changed on both sides", "one two three", "ONE two THREE", 5, 5],
  ["replaced", "abc", "xyz", 2, 3],
])("the caret stays at its place when text is %s", (_, before, text, offset, moved) => {
  expect(moveOffset(offset, before, text)).toBe(moved);
});
