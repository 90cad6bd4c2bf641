// The parts of a page in which paths are resolved, the page itself or one row of a list, with the bound
// elements of each.

import { type Attribute, attributesOf } from "./attributes";
import { known } from "./bridge";
import { parentOf } from "./dom";
import { showModel } from "./fields";
import type { List, Row } from "./lists";
import { type Path, resolvePath } from "./paths";
import { showAction } from "./triggers";
import { isContainer, MISSING } from "./values";
import { WRITERS } from "./writers";

const NOT_SHOWN = Symbol("not shown");

export class Scope {
  item: unknown = MISSING;
  index: unknown = MISSING;
  readonly bounds = new Map<Element, Bound>();
  readonly lists = new Set<List>();

  /** The row that this scope is; null for the page. */
  get row(): Row | null {
    return null;
  }

  bind(element: Element, attributes: readonly Attribute[] = attributesOf(element)): void {
    if (attributes.length) this.bounds.set(element, new Bound(element, attributes, this));
    else this.bounds.delete(element);
  }

  update(): void {
    for (const list of this.lists) list.update();
    // After the lists: a select shows its value only when it has its options.
    for (const bound of this.bounds.values()) bound.update();
  }

  /** Return the value of a path in this scope, or `MISSING`. */
  valueAt({ root, parts }: Path): unknown {
    if (root === "index") return this.index;
    return resolvePath(root === "state" ? known.state : this.item, parts);
  }
}

export const page = new Scope();
export const rowOf = new WeakMap<Node, Row>(); // by element: the row whose root it is

/** Return the scope of a node: its row, or the page. */
export function scopeOf(node: Node | null): Scope {
  for (let at = node; at; at = parentOf(at)) {
    const row = rowOf.get(at);
    if (row) return row;
  }
  return page;
}

/** An element and its parsed attributes. Unchanged values are not written again. */
export class Bound {
  readonly #format: string | null;
  readonly #shown: unknown[];

  constructor(
    readonly element: Element,
    readonly attributes: readonly Attribute[],
    readonly scope: Scope,
  ) {
    this.#format = attributes.find(({ kind }) => kind === "format")?.value.trim() ?? null;
    this.#shown = attributes.map(() => NOT_SHOWN);
  }

  /** Write the text again with the next update, because a script has changed the content of the element. */
  forgetText(): void {
    for (const [at, { kind }] of this.attributes.entries()) if (kind === "text") this.#shown[at] = NOT_SHOWN;
  }

  update(): void {
    const { element, attributes, scope } = this;
    for (let at = 0; at < attributes.length; at += 1) {
      const attribute = attributes[at];
      if (!attribute) continue;
      const { kind, path } = attribute;
      if (kind === "model") showModel(element, scope.row, path);
      else if (kind === "action" || kind === "control") showAction(element, scope === page);
      else if (path) this.#write(at, attribute, path);
    }
  }

  #write(at: number, attribute: Attribute, path: Path): void {
    const write = WRITERS[attribute.kind];
    if (!write) return;
    const value = this.scope.valueAt(path);
    if (value === this.#shown[at] && !isContainer(value)) return;
    this.#shown[at] = value;
    write(this.element, value, attribute, this.#format);
  }
}
