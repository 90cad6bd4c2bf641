// `data-gsv-each`: an element that is repeated for each item of a list.
//
// The element itself is the template: it is taken out of the page, and a comment marks its place. Rows are
// matched by `data-gsv-key`. A row keeps its element, and with it focus, selection, scroll position and
// entries, for as long as its item exists. The rows of a list are in one parent, before the comment.

import { removeElement } from "./dom";
import { closeModels } from "./models";
import { type Parts, resolvePath } from "./paths";
import { placeRows } from "./row_order";
import { rowOf, Scope } from "./scopes";
import type { Template } from "./templates";
import { MISSING } from "./values";

export const listOf = new WeakMap<Node, List>(); // by comment: the list whose end it marks
let rowCount = 0;

export class Row extends Scope {
  readonly id: number;
  readonly node: Element;
  readonly modelKeys = new Set<string>(); // of the fields in the row
  position = -1; // in the page, while the rows are ordered

  constructor(
    readonly list: List,
    readonly key: unknown,
  ) {
    super();
    rowCount += 1;
    this.id = rowCount;
    // All places are looked up before the first list adds rows, which would move them.
    const { root, bound, inner } = list.template.copy();
    this.node = root;
    rowOf.set(root, this);
    for (const [element, attributes] of bound) this.bind(element, attributes);
    for (const [marker, template] of inner) this.lists.add(new List(template, marker, this));
  }

  override get row(): Row {
    return this;
  }

  /** Return the place of the item in the state; null if the list is not in the state. */
  get parts(): Parts | null {
    const above = this.list.parts;
    return above && [...above, String(this.index)];
  }

  remove(): void {
    removeElement(this.node);
    this.close();
  }

  /** Forget what belongs to the row: its item is gone, or the list around it. */
  close(): void {
    closeModels(this);
    for (const list of this.lists) list.close();
  }
}

export class List {
  rows: readonly Row[] = [];
  items: readonly unknown[] = [];
  found: unknown = MISSING; // the value of the path
  repeatedKey: unknown = MISSING; // of two items
  keylessIndex = -1; // of an item without a key
  #byKey: ReadonlyMap<unknown, Row> = new Map();

  constructor(
    readonly template: Template,
    readonly marker: Comment,
    readonly scope: Scope,
  ) {
    template.lists.add(this);
    listOf.set(marker, this);
  }

  /** Return the place of the list in the state; null if its path begins elsewhere. */
  get parts(): Parts | null {
    const { path } = this.template;
    if (path?.root === "state") return path.parts;
    const above = path?.root === "item" ? (this.scope.row?.parts ?? null) : null;
    return path && above && [...above, ...path.parts];
  }

  update(): void {
    const { path, limit } = this.template;
    this.found = path === null ? MISSING : this.scope.valueAt(path);
    const all: readonly unknown[] = Array.isArray(this.found) ? this.found : [];
    this.items = all.length > limit ? all.slice(0, limit) : all;
    const before = this.rows;
    this.#match();
    let isMoved = before.length !== this.rows.length;
    for (const [at, row] of this.rows.entries()) {
      row.update();
      isMoved ||= row !== before[at];
    }
    if (isMoved) placeRows(this.rows, this.marker);
  }

  /** Find or create the row of each item, and remove the rows of items that are gone. */
  #match(): void {
    const known = new Map<unknown, Row>();
    [this.repeatedKey, this.keylessIndex] = [MISSING, -1];
    const before = this.rows;
    this.rows = this.items.map((item, index) => {
      const key = this.#keyOf(item, index, known);
      const row = this.#byKey.get(key) ?? new Row(this, key);
      row.item = item;
      row.index = index;
      known.set(key, row);
      return row;
    });
    this.#byKey = known;
    for (const row of before) if (known.get(row.key) !== row) row.remove();
  }

  /** Return the key of an item. An item without a key, or with that of an earlier item, has its position. */
  #keyOf(item: unknown, index: number, taken: ReadonlyMap<unknown, Row>): unknown {
    if (this.template.key === null) return index;
    const key = resolvePath(item, this.template.key);
    if (!["string", "number", "boolean"].includes(typeof key)) {
      if (this.keylessIndex < 0) this.keylessIndex = index;
      return positionKey(index);
    }
    if (!taken.has(key)) return key;
    this.repeatedKey = key;
    return positionKey(index);
  }

  close(): void {
    this.template.lists.delete(this);
    for (const row of this.rows) row.close();
  }
}

/** Return the key of an item that is matched by its position. No item can have it as its own key. */
const positionKey = (index: number): symbol => Symbol.for(`gsv:${index}`);
