// The order of a list's rows in the page. Only rows that have to move are moved, and the row that has the
// focus or the selection never does.

import { isWithin } from "./dom";
import type { Row } from "./lists";
import { rowOf } from "./scopes";

/** Put the rows into their order, before the marker. */
export function placeRows(rows: readonly Row[], marker: Comment): void {
  const parent = marker.parentNode;
  if (!parent) return; // a script has removed the list
  let position = 0; // in the page, where a script may have moved rows
  for (let node = parent.firstChild; node && node !== marker; node = node.nextSibling) {
    const row = rowOf.get(node);
    if (row?.list.marker === marker) {
      position += 1;
      row.position = position;
    }
  }
  const staying = rowsThatStay(rows, pinnedRow(rows));
  let next: Node = marker;
  for (const row of rows.toReversed()) {
    if (!staying.has(row)) insert(parent, row.node, next);
    next = row.node;
  }
  for (const row of rows) row.position = -1;
}

/** Insert or move a node. `moveBefore` keeps focus and scroll positions; not every browser has it. */
function insert(parent: ParentNode, node: Element, next: Node): void {
  const isMove = "moveBefore" in parent && node.isConnected && node.parentNode === parent;
  if (isMove) parent.moveBefore(node, next);
  else parent.insertBefore(node, next);
}

/** A row in its new order: `position` is the old one, or -1 for a new row. */
interface Placed {
  readonly position: number;
}

/** Return the largest set of rows, with the pinned one, that can stay while the others move around them. */
export function rowsThatStay<Kind extends Placed>(rows: readonly Kind[], pinned?: Kind): Set<Kind> {
  const at = pinned ? rows.indexOf(pinned) : -1;
  const candidates = rows.filter(
    (row, index) =>
      row.position >= 0 && (!pinned || row === pinned || index < at === row.position < pinned.position),
  );
  // The longest increasing subsequence of the old positions. `ends[n]` ends the best one of n + 1 rows.
  const ends: Kind[] = [];
  const previous = new Map<Kind, Kind | undefined>();
  for (const row of candidates) {
    let [low, high] = [0, ends.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((ends[middle]?.position ?? 0) < row.position) low = middle + 1;
      else high = middle;
    }
    previous.set(row, ends[low - 1]);
    ends[low] = row;
  }
  const staying = new Set<Kind>();
  for (let row = ends.at(-1); row; row = previous.get(row)) staying.add(row);
  return staying;
}

function pinnedRow(rows: readonly Row[]): Row | undefined {
  const { activeElement } = document;
  const used = activeElement && activeElement !== document.body ? activeElement : selectedNode;
  return used ? rows.find((row) => row.position >= 0 && isWithin(used, row.node)) : undefined;
}

// Where the selected text begins. Kept, because asking for it in the middle of an update causes a layout.
let selectedNode: Node | null = null;

export function followSelection(): void {
  document.addEventListener("selectionchange", () => {
    const selection = document.getSelection();
    selectedNode = selection?.isCollapsed === false ? selection.anchorNode : null;
  });
}
