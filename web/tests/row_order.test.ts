// @vitest-environment happy-dom

import { expect, test } from "vitest";
import { rowsThatStay } from "../sdk/row_order";

const rowsAt = (positions: number[]) => positions.map((position) => ({ position }));
const staying = (positions: number[], pinned?: number) => {
  const rows = rowsAt(positions);
  const pin = rows.find(({ position }) => position === pinned);
  return [...rowsThatStay(rows, pin)].map(({ position }) => position).sort((a, b) => a - b);
};

test.each([
  [
    [1, 2, 3],
    [1, 2, 3],
  ],
  [
    [4, 1, 2, 3],
    [1, 2, 3],
  ],
  [
    [2, 3, 4, 1],
    [2, 3, 4],
  ],
  [
    [1, -1, 2],
    [1, 2],
  ],
  [[-1, -1], []],
])("of the old positions %j those of %j stay", (positions, expected) => {
  expect(staying(positions)).toEqual(expected);
});

test("the row in use stays, and the others move around it", () => {
  expect(staying([4, 1, 2, 3], 4)).toEqual([4]);
  expect(staying([2, 4, 1, 3], 1)).toEqual([1, 3]);
});

/** Return the length of the longest increasing subsequence by trying all. */
function longest(positions: number[]): number {
  let best = 0;
  for (let set = 0; set < 1 << positions.length; set += 1) {
    const chosen = positions.filter((_, at) => (set >> at) & 1);
    if (chosen.every((value, at) => at === 0 || value > (chosen[at - 1] ?? 0)))
      best = Math.max(best, chosen.length);
  }
  return best;
}

test("as many rows as possible stay, in every order of five", () => {
  const permute = (items: number[]): number[][] =>
    items.length
      ? items.flatMap((item) =>
          permute(items.filter((other) => other !== item)).map((rest) => [item, ...rest]),
        )
      : [[]];
  for (const positions of permute([1, 2, 3, 4, 5]))
    expect(staying(positions)).toHaveLength(longest(positions));
});
