// The nearest known word or path, for the report of a misspelled one. Pure functions.

import { isPart, type Parts, resolvePath } from "./paths";
import { isObject, MISSING } from "./values";

/** Return the path with its first unknown part replaced by the nearest name there, or null. */
export function nearestPath(root: unknown, parts: Parts): Parts | null {
  let value = root;
  for (const [depth, part] of parts.entries()) {
    const next = resolvePath(value, [part]);
    if (next === MISSING) {
      const near = isObject(value) ? nearestWord(part, Object.keys(value).filter(isPart)) : null;
      return near === null ? null : parts.with(depth, near);
    }
    value = next;
  }
  return null;
}

/** Return the name whose word has the fewest different letters, or null if none is similar. */
export function nearestWord(
  word: string,
  names: readonly string[],
  wordOf = (name: string): string => name,
): string | null {
  let nearest: string | null = null;
  let least = Math.max(1, Math.floor(word.length / 3)) + 1;
  for (const name of names) {
    const distance = editDistance(word.toLowerCase(), wordOf(name).toLowerCase());
    if (distance < least) [nearest, least] = [name, distance];
  }
  return nearest;
}

/** Return how many letters differ between two words: added, removed, replaced, or exchanged with the next. */
export function editDistance(first: string, second: string): number {
  const length = second.length;
  let before: number[] = [];
  let row = Array.from({ length: length + 1 }, (_, index) => index);
  // Every index below is within its row.
  const at = (values: readonly number[], index: number): number => values[index] ?? 0;
  for (let from = 1; from <= first.length; from += 1) {
    const next = [from];
    for (let to = 1; to <= length; to += 1) {
      const isSame = first[from - 1] === second[to - 1];
      const isExchange =
        from > 1 && to > 1 && first[from - 1] === second[to - 2] && first[from - 2] === second[to - 1];
      const changed = at(row, to - 1) + (isSame ? 0 : 1);
      const exchanged = isExchange ? at(before, to - 2) + 1 : Number.POSITIVE_INFINITY;
      next[to] = Math.min(at(next, to - 1) + 1, at(row, to) + 1, changed, exchanged);
    }
    [before, row] = [row, next];
  }
  return at(row, length);
}
