// @vitest-environment happy-dom

import { expect, test } from "vitest";
import { authorColumn, parseInsertions } from "../sdk/reports";

test("the insertions of the server are read from the script element", () => {
  expect(parseInsertions("1:10:5,3:1:20")).toEqual([
    { line: 1, column: 10, length: 5 },
    { line: 3, column: 1, length: 20 },
  ]);
  expect(parseInsertions("")).toEqual([]);
});

test.each([
  [1, 4, 4],
  [1, 40, 15],
  [2, 40, 40],
])("of line %d the served column %d is the author's column %d", (line, column, expected) => {
  const insertions = parseInsertions("1:10:5,1:12:20");
  expect(authorColumn(insertions, line, column)).toBe(expected);
});
