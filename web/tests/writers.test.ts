// @vitest-environment happy-dom

import { expect, test } from "vitest";
import { parseAttribute } from "../sdk/attributes";
import { MISSING } from "../sdk/values";
import { refusalOf, refusedScheme, WRITERS } from "../sdk/writers";
import { createElement } from "./elements";

function write(html: string, attribute: string, value: unknown): Element {
  const element = createElement(html);
  const parsed = parseAttribute(attribute, "state.a");
  WRITERS[parsed.kind]?.(element, value, parsed, null);
  return element;
}

test.each([
  ["a", "href", false],
  ["td", "colspan", false],
  ["a", "onclick", true],
  ["iframe", "src", true],
  ["SCRIPT", "src", true],
  ["p", "style", true],
  ["img", "srcset", true],
  ["p", "data-gsv-action", true],
  ["p", "1x", true],
])("of <%s> the attribute %s is refused: %s", (tag, name, isRefused) => {
  expect(refusalOf(tag, name) !== null).toBe(isRefused);
});

test.each([
  ["https://a.example/", null],
  ["mailto:a@b.example", null],
  ["assets/x.png", null],
  ["data:image/png;base64,AA", null],
  ["data:text/html,x", "data:"],
  [" javascript:alert(1)", "javascript:"],
  ["java\nscript:alert(1)", "javascript:"],
])("the scheme of %j is refused: %j", (address, scheme) => {
  expect(refusedScheme(address)).toBe(scheme);
});

test("a text never becomes HTML", () => {
  const element = write("<p>before</p>", "data-gsv-text", "<b>x</b>");
  expect(element.innerHTML).toBe("&lt;b&gt;x&lt;/b&gt;");
});

test("a changed text keeps its text node, and with it a selection", () => {
  const element = createElement("<p>before</p>");
  const node = element.firstChild;
  WRITERS.text?.(element, "after", parseAttribute("data-gsv-text", "state.a"), null);
  expect(element.firstChild).toBe(node);
  expect(element.textContent).toBe("after");
});

test.each([
  [true, ""],
  ["x", "x"],
  [0, "0"],
  [false, null],
  [null, null],
  [MISSING, null],
])("a bound attribute with the value %j is %j", (value, text) => {
  expect(write('<a title="old">x</a>', "data-gsv-attr-title", value).getAttribute("title")).toBe(text);
});

test("an address with a refused scheme removes the attribute", () => {
  const link = write('<a href="old">x</a>', "data-gsv-attr-href", "javascript:alert(1)");
  expect(link.hasAttribute("href")).toBe(false);
});

test("an attribute that cannot be bound is never written", () => {
  expect(write("<p>x</p>", "data-gsv-attr-onclick", "alert(1)").hasAttribute("onclick")).toBe(false);
});
