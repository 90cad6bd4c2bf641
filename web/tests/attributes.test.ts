// @vitest-environment happy-dom

import { expect, test } from "vitest";
import { attributesOf, parseAttribute } from "../sdk/attributes";
import { createElement } from "./elements";

test.each([
  ["data-gsv-text", "text", ""],
  ["data-gsv-attr-href", "attr", "href"],
  ["data-gsv-attr-aria-label", "attr", "aria-label"],
  ["data-gsv-attr", "unknown", ""],
  ["data-gsv-attr-", "unknown", ""],
  ["data-gsv-text-x", "unknown", ""],
  ["data-gsv-txt", "unknown", ""],
  ["data-gsv-unsaved", "status", ""],
])("%s is of the kind %s with the name %j", (attribute, kind, name) => {
  expect(parseAttribute(attribute, "state.a")).toMatchObject({ kind, name });
});

test("only an attribute that takes a path has one", () => {
  expect(parseAttribute("data-gsv-value-id", "item.id").path).toEqual({ root: "item", parts: ["id"] });
  expect(parseAttribute("data-gsv-input-id", "item.id").path).toBeNull();
  expect(parseAttribute("data-gsv-text", "nowhere").path).toBeNull();
});

test("a form is read although its fields hide its members", () => {
  const form = createElement(
    '<form data-gsv-action="save" data-gsv-status="running"><input name="getAttributeNames"></form>',
  );
  expect(attributesOf(form).map(({ attribute, value }) => [attribute, value])).toEqual([
    ["data-gsv-action", "save"],
  ]);
});
