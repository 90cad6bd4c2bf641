// @vitest-environment happy-dom

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { connect } from "../sdk/bridge";
import { allSaved, closeModels, findConflict, type Model, modelOf, setConnected } from "../sdk/models";
import { Shell } from "./shell";

const shell = new Shell();
connect();
let revision = 0;

function show(state: unknown): void {
  revision += 1;
  shell.show(state, revision);
}

/** Return the model of a member of the state; each test uses a member of its own. */
function modelAt(name: string): Model {
  const model = modelOf(null, { root: "state", parts: [name] });
  if (!model) throw new Error(`no model of ${name}`);
  return model;
}

/** Wait until the promises that an answer settles have run. */
const settle = () => vi.advanceTimersByTimeAsync(0);

shell.welcome({});
beforeEach(() => {
  vi.useFakeTimers();
  shell.received.length = 0;
});
afterEach(() => {
  vi.useRealTimers();
});

test("an entry is sent after a pause, with the value that the field showed before", async () => {
  show({ a: "old" });
  const model = modelAt("a");
  model.enter("n", true);
  vi.advanceTimersByTime(249);
  model.enter("new", true);
  vi.advanceTimersByTime(249);
  expect(shell.take("input")).toEqual([]);
  vi.advanceTimersByTime(1);
  const [sent] = shell.take("input");
  expect(sent).toMatchObject({ pointer: "/a", value: "new", was: "old" });
  expect(model.isDirty).toBe(true);
  shell.accept(sent?.id);
  await settle();
  expect(model.isDirty).toBe(false);
});

test("typing without a pause is sent after a second", async () => {
  show({ b: "" });
  const model = modelAt("b");
  for (let count = 0; count < 6; count += 1) {
    model.enter(`text ${count}`, true);
    vi.advanceTimersByTime(200);
  }
  const [sent] = shell.take("input");
  expect(sent).toMatchObject({ value: "text 4" });
  expect(vi.getTimerCount()).toBe(1); // of the entry after it
  model.resolve("theirs");
  shell.accept(sent?.id);
  await settle();
});

test("an entry during a request is sent after it, over the value that the request has saved", async () => {
  show({ c: 1 });
  const model = modelAt("c");
  model.enter(2, false);
  vi.advanceTimersByTime(0);
  const [first] = shell.take("input");
  model.enter(3, false);
  vi.advanceTimersByTime(0);
  expect(shell.take("input")).toEqual([]);
  shell.accept(first?.id);
  await settle();
  const [second] = shell.take("input");
  expect(second).toMatchObject({ value: 3, was: 2 });
  shell.accept(second?.id);
  await settle();
  expect(model.isDirty).toBe(false);
});

test("a conflict keeps the entry until the person chooses", async () => {
  show({ d: "theirs" });
  const model = modelAt("d");
  model.enter("mine", false);
  vi.advanceTimersByTime(0);
  shell.refuse(shell.take("input")[0]?.id, "INPUT_CONFLICT");
  await settle();
  expect(findConflict("/d")).toBe(model);
  expect(model.value).toBe("mine");
  await expect(allSaved()).rejects.toMatchObject({ name: "NOT_SAVED" });
  show({ d: "theirs again" });
  model.resolve("mine");
  const [sent] = shell.take("input");
  expect(sent).toMatchObject({ value: "mine", was: "theirs again" });
  shell.accept(sent?.id);
  await settle();
  expect(model.isDirty).toBe(false);
});

test("the stored value replaces an entry that the person gives up", async () => {
  show({ e: "theirs" });
  const model = modelAt("e");
  model.enter("mine", false);
  vi.advanceTimersByTime(0);
  shell.refuse(shell.take("input")[0]?.id, "INPUT_CONFLICT");
  await settle();
  model.resolve("theirs");
  expect(model.value).toBe("theirs");
  expect(shell.take("input")).toEqual([]);
});

test("an entry of a row is sent again when its item has moved", async () => {
  show({ rows: [{ f: 1 }] });
  const row = { id: 7, parts: ["rows", "0"], modelKeys: new Set<string>() };
  const model = modelOf(row, { root: "item", parts: ["f"] });
  model?.enter(2, false);
  vi.advanceTimersByTime(0);
  const [first] = shell.take("input");
  expect(first).toMatchObject({ pointer: "/rows/0/f", revision });
  row.parts = ["rows", "1"];
  shell.refuse(first?.id, "REVISION_CONFLICT");
  await settle();
  expect(shell.take("input")[0]).toMatchObject({ pointer: "/rows/1/f", value: 2 });
  closeModels(row);
  expect(shell.take("problem")[0]).toMatchObject({ place: "state.rows.1.f" });
});

test("another refusal stops the entry, and the action that waits for it", async () => {
  show({ g: 1 });
  const model = modelAt("g");
  model.enter(2, false);
  vi.advanceTimersByTime(0);
  const saved = expect(allSaved()).rejects.toMatchObject({
    message: "state.g is not saved: refused: TOO_LARGE",
  });
  shell.refuse(shell.take("input")[0]?.id, "TOO_LARGE");
  await saved;
  model.enter(1, false);
  vi.advanceTimersByTime(0);
  shell.accept(shell.take("input")[0]?.id);
  await expect(allSaved()).resolves.toBeUndefined();
});

test("without a connection nothing waits for unsaved entries", async () => {
  show({ h: 1 });
  modelAt("h").enter(2, false);
  setConnected(false);
  await expect(allSaved()).rejects.toMatchObject({ name: "UNAVAILABLE" });
  setConnected(true);
  const saved = allSaved();
  shell.accept(shell.take("input")[0]?.id);
  await expect(saved).resolves.toBeUndefined();
});
