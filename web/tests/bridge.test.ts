// @vitest-environment happy-dom

import { beforeAll, beforeEach, expect, test, vi } from "vitest";
import { connect, known, reportProblem, request, send, subscribe } from "../sdk/bridge";
import { Shell } from "./shell";

const shell = new Shell();

beforeAll(connect);
beforeEach(() => {
  shell.received.length = 0;
});

test("only the greeting is sent before the welcome, and the rest with its nonce", () => {
  send("hello");
  reportProblem("index.html:1", "broken");
  expect(shell.received.map(({ kind }) => kind)).toEqual(["hello"]);
  shell.welcome({ state: { count: 1 }, revision: 3 });
  expect(shell.take("problem")).toEqual([
    { gsv: 1, nonce: "n-1", kind: "problem", place: "index.html:1", message: "broken" },
  ]);
});

test("a problem is reported once", () => {
  reportProblem("index.html:2", "broken");
  reportProblem("index.html:2", "broken");
  expect(shell.take("problem")).toHaveLength(1);
});

test.each([
  ["another window", { source: {} }],
  ["another document", { nonce: "n-0" }],
])("a message for or from %s is ignored", (_, options) => {
  shell.send({ kind: "state", state: { count: 99 }, revision: 99 }, options);
  expect(known.state).toEqual({ count: 1 });
});

test("an older state is ignored, and a newer one is frozen and announced", () => {
  const listener = vi.fn();
  const end = subscribe(listener);
  shell.show({ count: 0 }, 2);
  shell.show({ count: 4 }, 4);
  end();
  shell.show({ count: 5 }, 5);
  expect(listener.mock.calls).toEqual([[{ count: 1 }], [{ count: 4 }]]);
  expect(Object.isFrozen(known.state)).toBe(true);
});

test("an answer settles its own request only", async () => {
  const first = request("action", { actionId: "a" });
  const second = request("action", { actionId: "b" });
  const [one, two] = shell.take("action");
  shell.refuse(two?.id, "FORBIDDEN");
  shell.accept(one?.id, { ok: true });
  await expect(first).resolves.toEqual({ ok: true });
  await expect(second).rejects.toMatchObject({ name: "FORBIDDEN", code: 409, message: "refused: FORBIDDEN" });
});
