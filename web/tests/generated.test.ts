// @vitest-environment happy-dom

import { beforeAll, beforeEach, expect, test, vi } from "vitest";
import type { StateListener } from "../sdk/bridge";

const PATHS = {
  writable: [["name"], ["count"], ["isOn"], ["more"]],
  results: [["last"]],
  saves: { deploy: ["last"] },
  numbers: [["count"]],
};
const listeners = new Set<StateListener>();
const cancelAction = vi.fn(async () => {});
let state: unknown = {};

vi.stubGlobal("gsvCanvas", {
  getState: () => state,
  subscribe: (listener: StateListener) => listeners.add(listener),
  cancelAction,
});

function show(next: unknown): void {
  state = next;
  for (const listener of listeners) listener(state);
}

function showStatus(status: object): void {
  const detail = { deploy: { eventId: "e-1", ...status } };
  document.dispatchEvent(new CustomEvent("gsv:status", { detail }));
}

function find(selector: string): HTMLElement {
  const element = document.querySelector<HTMLElement>(selector);
  if (!element) throw new Error(`no element ${selector}`);
  return element;
}

beforeAll(async () => {
  document.body.innerHTML = `<section id="actions"></section><main id="state"></main><p id="nothing"></p>
    <span data-outcome="deploy"></span><button data-stop="deploy"></button><pre data-output="deploy"></pre>
    <script type="application/json" id="paths">${JSON.stringify(PATHS)}</script>`;
  await import("../sdk/generated/main");
});
beforeEach(() => show({}));

test("an empty canvas shows a note", () => {
  expect(find("#nothing").hidden).toBe(false);
  show({ name: "a" });
  expect(find("#nothing").hidden).toBe(true);
});

test.each([
  ["name", "a", "input:not([type])"],
  ["name", "a\nb", "textarea"],
  ["name", "a".repeat(81), "textarea"],
  ["count", 1, "input[type=number]"],
  ["count", null, "input[type=number][required]"],
  ["isOn", true, "input[type=checkbox]"],
  ["fixed", "a", "[data-gsv-text='state.fixed']"],
])("the member %s with the value %j gets its element", (name, value, selector) => {
  show({ [name]: value });
  expect(find("#state").querySelectorAll(selector)).toHaveLength(1);
});

test("a list of objects is a table whose rows the SDK repeats", () => {
  show({ rows: [{ id: 1 }, { id: 2, title: "b" }] });
  expect([...document.querySelectorAll("th")].map((node) => node.textContent)).toEqual(["Id", "Title"]);
  const body = find("tbody");
  expect(body.children).toHaveLength(1);
  expect(find("tbody tr").dataset.gsvEach).toBe("state.rows");
  show({ rows: [{ id: 1 }, { id: 2, title: "c" }] });
  expect(find("tbody")).toBe(body);
});

test("a list that no path reaches is drawn, and its unchanged items stay", () => {
  show({ "a b": ["x", "y"] });
  const [first] = document.querySelectorAll("li");
  show({ "a b": ["x", "z", "<b>"] });
  expect([...document.querySelectorAll("li")].map((node) => node.textContent)).toEqual(["x", "z", "<b>"]);
  expect(document.querySelector("li")).toBe(first);
});

test("a focused field stays while its value changes its kind or is removed", () => {
  show({ name: "a", count: 1 });
  const field = find("[data-gsv-model='state.name']");
  field.focus();
  show({ name: { first: "a" }, count: 1 });
  expect(document.activeElement).toBe(field);
  show({ count: 2 });
  expect(document.activeElement).toBe(field);
  field.blur();
  show({ count: 3 });
  expect(field.isConnected).toBe(false);
});

test("a result shows its output and its failure", () => {
  const result = { output: "text", exit_code: 2, truncated: true };
  show({ last: { ok: true, result, finishedAt: "2026-11-19T10:00:00Z" } });
  expect(find("pre.value").textContent).toBe("text");
  expect([...document.querySelectorAll(".bad")].map((node) => node.textContent)).toEqual([
    "exit code 2",
    "the output was cut",
  ]);
});

test.each([
  [{ status: "running" }, "running…", "outcome running"],
  [{ status: "completed" }, "done", "outcome completed"],
  [{ status: "failed", error: "no disk" }, "failed: no disk", "outcome failed"],
  [{ status: "failed", errorName: "CANCELLED" }, "stopped", "outcome stopped"],
  [{ status: "asked" }, "waits for consent", "outcome asked"],
])("an action with %j shows “%s”", (status, text, className) => {
  showStatus(status);
  expect(find("[data-outcome]").textContent).toBe(text);
  expect(find("[data-outcome]").className).toBe(className);
});

test("a completed action shows the notes on the result that it has saved", () => {
  show({ last: { ok: true, result: { output: "", exit_code: 1 }, finishedAt: "t-2" } });
  showStatus({ status: "completed", at: "t-1" });
  expect(find("[data-outcome]").textContent).toBe("done");
  showStatus({ status: "completed", at: "t-2" });
  expect(find("[data-outcome]").textContent).toBe("done, exit code 1");
});

test("a running action shows its last output as a terminal does, and can be stopped", () => {
  const lines = Array.from({ length: 20 }, (_, index) => `line ${index}`);
  showStatus({ status: "running", output: [...lines, "10 %\r\u001b[32m20 %\u001b[0m"].join("\n") });
  const shown = find("[data-output]").textContent?.split("\n") ?? [];
  expect([shown.length, shown[0], shown.at(-1)]).toEqual([13, "line 8", "20 %"]);
  find("[data-stop]").click();
  expect(cancelAction).toHaveBeenCalledWith("e-1");
});
