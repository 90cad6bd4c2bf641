// The element that a list repeats, with the places of its bindings and of the lists inside it.

import { type Attribute, attributesOf, PREFIX } from "./attributes";
import { childNodesOf, isMarkedBy } from "./dom";
import type { List } from "./lists";
import { type Parts, type Path, parseKey, parsePath } from "./paths";

export const EACH = `${PREFIX}each`;
export const LIST_KINDS = ["each", "key", "limit"] as const;
const LIMIT = /^\s*\d{1,9}\s*$/;

export const isLimit = (text: string): boolean => LIMIT.test(text);

/** The way from the root to a node, one child index each. */
type Steps = readonly number[];

export class Template {
  readonly tag: string;
  readonly attributes: readonly Attribute[];
  readonly path: Path | null;
  readonly key: Parts | null;
  readonly limit: number;
  readonly bound: { steps: Steps; tag: string; attributes: readonly Attribute[] }[] = [];
  readonly inner: { steps: Steps; template: Template }[] = [];
  readonly lists = new Set<List>(); // those that exist

  constructor(readonly element: Element) {
    const attribute = (kind: (typeof LIST_KINDS)[number]) => element.getAttribute(`${PREFIX}${kind}`);
    this.tag = element.localName;
    this.attributes = attributesOf(element);
    this.path = parsePath(attribute("each") ?? "");
    const [key, limit] = [attribute("key"), attribute("limit") ?? ""];
    this.key = key === null ? null : parseKey(key);
    this.limit = isLimit(limit) ? Number(limit) : Number.POSITIVE_INFINITY;
    for (const kind of LIST_KINDS) element.removeAttribute(`${PREFIX}${kind}`);
    this.#compile(element, []);
  }

  #compile(element: Element, steps: Steps): void {
    const attributes = attributesOf(element);
    if (attributes.length) this.bound.push({ steps, tag: element.localName, attributes });
    for (const [index, child] of [...childNodesOf(element)].entries()) {
      if (!(child instanceof Element)) continue;
      if (isMarkedBy(child, EACH)) {
        child.replaceWith(document.createComment(""));
        this.inner.push({ steps: [...steps, index], template: new Template(child) });
      } else this.#compile(child, [...steps, index]);
    }
  }

  /** Return a copy of the element, its bound elements, and the comments at the places of the inner lists. */
  copy(): {
    root: Element;
    bound: (readonly [Element, readonly Attribute[]])[];
    inner: (readonly [Comment, Template])[];
  } {
    const root = this.element.cloneNode(true) as Element; // the copy of an element is an element
    return {
      root,
      bound: this.bound.map(({ steps, attributes }) => [follow<Element>(root, steps), attributes]),
      inner: this.inner.map(({ steps, template }) => [follow<Comment>(root, steps), template]),
    };
  }
}

/** Return the node at the end of steps that were recorded in the template of which `root` is a copy. */
function follow<Kind extends Node>(root: Node, steps: Steps): Kind {
  // Both casts hold because a copy has the nodes of its template.
  return steps.reduce<Node>((at, step) => childNodesOf(at)[step] as Node, root) as Kind;
}
