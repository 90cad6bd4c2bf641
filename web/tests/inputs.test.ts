// @vitest-environment happy-dom

import { expect, test } from "vitest";
import { inputOf, typedEntry } from "../sdk/inputs";
import { MISSING } from "../sdk/values";
import { createElement, createField } from "./elements";

test.each([
  ["<input>", "12", "12"],
  ['<input type="number">', "12", 12],
  ['<input type="number">', "", MISSING],
  ['<input data-input-type="integer">', " ", null],
  ['<input data-input-type="boolean">', "true", true],
  ['<input data-input-type="json">', '{"a":1}', { a: 1 }],
  ['<input data-input-type="json">', "{", "{"],
])("the entry of %s for the text %j is %j", (html, text, entry) => {
  expect(typedEntry(createField(html), text)).toEqual(entry);
});

test("a button sends the fields of its form, and its own inputs over them", () => {
  const form = createElement(
    `<form><input name="title" value="a"><input name="count" type="number" value="2">
     <input name="tag" type="checkbox" value="x" checked><input name="tag" type="checkbox" value="y" checked>
     <input name="urgent" type="checkbox"><input name="__proto__" value="bad">
     <button data-gsv-action="save" data-gsv-input-title="b" data-gsv-input-constructor="bad">Save</button></form>`,
  );
  const button = form.querySelector("button");
  expect(inputOf(button ?? form, null)).toEqual({ title: "b", count: 2, tag: ["x", "y"], urgent: false });
});

test("a field without a form sends its value", () => {
  expect(inputOf(createField('<input name="size" value="3">'), null)).toEqual({ size: "3" });
  expect(inputOf(createField('<input type="checkbox" checked>'), null)).toEqual({ value: true });
});
