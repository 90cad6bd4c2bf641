// @vitest-environment happy-dom

import { beforeAll, beforeEach, expect, test } from "vitest";
import { observePage, render } from "../sdk/bindings";
import { connect, handlers } from "../sdk/bridge";
import type { PageInfo } from "../sdk/messages";
import { Shell } from "./shell";

const shell = new Shell();
const info: PageInfo = {
  actions: ["deploy"],
  bindings: { go: "deploy" },
  writable: [["items"], ["name"]],
  saves: [["result"]],
};
let revision = 0;

function show(html: string, state: unknown): void {
  document.body.innerHTML = html;
  update(state);
}

function update(state: unknown): void {
  revision += 1;
  shell.show(state, revision);
}

const texts = (selector: string) => [...document.querySelectorAll(selector)].map((node) => node.textContent);

beforeAll(() => {
  connect();
  handlers.render = render;
  observePage();
  shell.welcome({ info });
});
beforeEach(() => {
  show("", {});
  shell.received.length = 0;
});

test("an element follows its value", () => {
  show('<p data-gsv-text="state.name"></p><p data-gsv-show="state.name">x</p>', { name: "a" });
  update({ name: "" });
  expect(texts("p")).toEqual(["", "x"]);
  expect(document.querySelectorAll("p[hidden]")).toHaveLength(1);
});

const LIST =
  '<ul><li data-gsv-each="state.items" data-gsv-key="id"><b data-gsv-text="item.name"></b></li></ul>';

test("a row keeps its element while its item moves and changes", () => {
  show(LIST, {
    items: [
      { id: 1, name: "a" },
      { id: 2, name: "b" },
    ],
  });
  const [first] = document.querySelectorAll("li");
  update({
    items: [
      { id: 2, name: "b" },
      { id: 3, name: "c" },
      { id: 1, name: "A" },
    ],
  });
  expect(texts("li")).toEqual(["b", "c", "A"]);
  expect(document.querySelectorAll("li")[2]).toBe(first);
  update({ items: [] });
  expect(document.querySelectorAll("li")).toHaveLength(0);
});

test("a list inside a list resolves its paths in the outer item", () => {
  show(
    '<ul><li data-gsv-each="state.items"><i data-gsv-each="item.tags" data-gsv-text="item"></i></li></ul>',
    { items: [{ tags: ["a", "b"] }, { tags: ["c"] }] },
  );
  expect(texts("li")).toEqual(["ab", "c"]);
});

test("a list shows at most its limit", () => {
  show('<p data-gsv-each="state.items" data-gsv-limit="2" data-gsv-text="item"></p>', { items: [1, 2, 3] });
  expect(texts("p")).toEqual(["1", "2"]);
});

/** Return the reported problems of a page, without their places. */
function problemsOf(html: string, state: unknown): string[] {
  shell.received.length = 0;
  show(html, state);
  const report: unknown = shell.take("broken").at(-1)?.broken;
  return Array.isArray(report) ? report.map(({ message }) => String(message)) : [];
}

test.each([
  ['<p data-gsv-text="state.nam"></p>', "Did you mean “state.name”?"],
  ['<p data-gsv-text="name"></p>', "A path must begin with “state.”"],
  ['<p data-gsv-txt="state.name"></p>', "Did you mean “data-gsv-text”?"],
  ['<p data-gsv-attr="state.name"></p>', "Did you mean “data-gsv-attr-NAME”?"],
  ['<p data-gsv-text="item.name"></p>', "known only inside an element with data-gsv-each"],
  ['<p data-gsv-attr-onclick="state.name"></p>', "use data-gsv-action"],
  ['<button data-gsv-action="deplyo"></button>', "There is no action “deplyo”. The spec has deploy."],
  ['<button data-gsv-control="stop"></button>', "There is no binding “stop”. The spec binds go."],
  ['<button data-gsv-input-id="state.name"></button>', "use data-gsv-value-id"],
  ['<input data-gsv-model="state.other">', "A page must not write here"],
  ['<p data-gsv-model="state.name"></p>', "Only input, select and textarea"],
  ['<p data-gsv-key="id"></p>', "only beside data-gsv-each"],
  ['<p data-gsv-text="state.name" data-gsv-format="dates"></p>', "There is no format “dates”"],
  ['<p data-gsv-each="state.name"></p>', "It is a text, and only a list can be repeated."],
  ['<p data-gsv-each="state.items" data-gsv-key="id"></p>', "Two items have the key (“id”) “1”."],
  ['<p data-gsv-each="state.items" data-gsv-key="name"></p>', "The item at index 0 has no key (“name”)."],
  ['<p data-gsv-each="state.items" data-gsv-text="item.di"></p>', "Did you mean “item.id”?"],
  ['<p data-gsv-each="state.items" data-gsv-limit="many"></p>', "A limit must be a number."],
])("the broken binding %s is reported", (html, message) => {
  const state = { name: "a", other: null, items: [{ id: 1 }, { id: 1 }] };
  expect(problemsOf(html, state)).toEqual([expect.stringContaining(message)]);
});

test.each([
  '<p data-gsv-text="state.result.output"></p>',
  '<p data-gsv-text="state.other.deep"></p>',
  '<p data-gsv-each="state.none" data-gsv-text="item.unknown"></p>',
  '<input data-gsv-model="state.name">',
  '<button data-gsv-action="deploy" data-gsv-status="running"></button>',
])("%s is no problem", (html) => {
  expect(problemsOf(html, { name: "a", other: null, none: [] })).toEqual([]);
});

test("an action shows its status, and only on the page, not in a list", () => {
  show(
    '<button data-gsv-action="deploy"></button><p data-gsv-each="state.items"><b data-gsv-action="deploy"></b></p>',
    { items: [1] },
  );
  shell.send({ kind: "state", statuses: { deploy: { eventId: "e", status: "running" } }, refreshes: {} });
  expect(document.querySelector("button")?.getAttribute("aria-busy")).toBe("true");
  expect(document.querySelector("b")?.hasAttribute("aria-busy")).toBe(false);
  expect(document.querySelector("b")?.getAttribute("role")).toBe("button");
});
