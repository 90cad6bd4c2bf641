import { expect, test } from "vitest";
import { editDistance, nearestPath, nearestWord } from "../sdk/nearest";

test.each([
  ["", "", 0],
  ["status", "status", 0],
  ["status", "satus", 1],
  ["status", "stauts", 1],
  ["status", "stanus", 1],
  ["ab", "", 2],
  ["kitten", "sitting", 3],
])("%j and %j differ in %d letters", (first, second, distance) => {
  expect(editDistance(first, second)).toBe(distance);
  expect(editDistance(second, first)).toBe(distance);
});

test.each([
  ["Stauts", "status"],
  ["step", "steps"],
  ["x", null],
  ["colour", null],
])("the nearest word to %j is %j", (word, expected) => {
  expect(nearestWord(word, ["status", "steps", "deploy"])).toBe(expected);
});

test("the first unknown part of a path is replaced", () => {
  const state = { deploy: { status: "green" }, list: ["a"] };
  expect(nearestPath(state, ["deplyo", "status"])).toEqual(["deploy", "status"]);
  expect(nearestPath(state, ["deploy", "satus"])).toEqual(["deploy", "status"]);
  expect(nearestPath(state, ["list", "name"])).toBeNull();
  expect(nearestPath(state, ["deploy", "status"])).toBeNull();
});
