// The state as elements, following its changes: an existing node stays, above all a field in use.
//
// A node is kept as long as the kind of its value stays the same, so that changes of other users do not
// disturb the focused field. A field keeps its kind, its caret and its entry until it has lost the focus and
// its entry is saved.

import type { Parts } from "../paths";
import { asText, isObject } from "../values";
import { arrange, morph } from "./changes";
import { create, createField, createText, toLabel } from "./elements";
import { createList, createResult, shapeOf } from "./results";
import { isField, isResultPath, type Kind, kindOf } from "./spec";

interface Drawing {
  readonly node: HTMLElement;
  readonly update: (value: unknown) => void;
}

type TextField = HTMLInputElement | HTMLTextAreaElement;

const MODEL = "[data-gsv-model]";
const drawings = new WeakMap<Element, { kind: Kind; update: Drawing["update"] }>();
let isRedrawDue = false; // a field in use has a value of another kind
let isComposing = false;
let movedCaret: { from: TextField; to: TextField } | null = null; // `to` replaces the focused field

export const setComposing = (is: boolean): void => {
  isComposing = is;
};

const isUnsaved = (node: Element): boolean =>
  node.querySelector("[data-gsv-unsaved], [data-gsv-half]") !== null;

/** Return the focused field in a node, or null. */
function focusedField(node: Element): Element | null {
  const { activeElement } = document;
  return activeElement?.matches(MODEL) && node.contains(activeElement) ? activeElement : null;
}

function isInUse(node: Element): boolean {
  const inUse = focusedField(node) !== null || isUnsaved(node);
  isRedrawDue ||= inUse;
  return inUse;
}

/** Return a node for a value: the existing one, if it can show the value or is in use, or else a new one. */
function nodeFor(before: Element | undefined, value: unknown, path: Parts, depth: number): Element {
  const known = before ? drawings.get(before) : undefined;
  const kind = kindOf(value, path, depth, known?.kind);
  const grows = known?.kind === "short" && kind === "long";
  const growsOnOneLine = grows && typeof value === "string" && !value.includes("\n");
  const fits = known?.kind === kind || (known?.kind === "long" && kind === "short") || growsOnOneLine;
  if (fits) known?.update(value);
  if (fits && before) return before;
  // Another user added a line break: a one-line field would drop it with the next key.
  const needsLines = grows && before && !isUnsaved(before) && !isComposing;
  if (before && !needsLines && isInUse(before)) return before;
  const drawing = draw(kind, path, depth, value);
  drawing.update(value);
  drawings.set(drawing.node, { kind, update: drawing.update });
  if (needsLines) followCaret(before, drawing.node);
  return drawing.node;
}

/** Remember the caret of the focused field for the one that replaces it. */
function followCaret(before: Element, node: Element): void {
  const [from, to] = [focusedField(before), node.querySelector("textarea")];
  const isText = from instanceof HTMLInputElement || from instanceof HTMLTextAreaElement;
  if (isText && to) movedCaret = { from, to };
}

function moveCaret({ from, to }: { from: TextField; to: TextField }): void {
  const { value, selectionStart, selectionEnd, selectionDirection } = from;
  to.value = value;
  to.focus({ preventScroll: true });
  to.setSelectionRange(selectionStart, selectionEnd, selectionDirection ?? undefined);
}

function draw(kind: Kind, path: Parts, depth: number, value: unknown): Drawing {
  if (kind === "members") return drawMembers(path, depth);
  if (isField(kind)) return { node: createField(path, kind), update: () => {} }; // updated by the SDK
  if (kind === "text") return createText(path, value);
  if (kind === "list") return drawList(path);
  return drawContent(kind === "result" ? createResult : (json) => create("pre", "value", asText(json)));
}

/** Draw a value that is created again with each change. */
function drawContent(render: (value: unknown) => HTMLElement): Drawing {
  const node = create("div", "");
  let last: string | undefined;
  const update = (value: unknown): void => {
    const content = JSON.stringify(value) ?? "";
    if (content === last) return;
    last = content;
    if (node.firstChild) morph(node.firstChild, render(value));
    else node.append(render(value));
  };
  return { node, update };
}

/** Draw a list. While the SDK repeats its items, only a change of its shape needs new elements. */
function drawList(path: Parts): Drawing {
  const node = create("div", "");
  let last: string | undefined;
  let wasRepeated = false;
  const update = (value: unknown): void => {
    const items: readonly unknown[] = Array.isArray(value) ? value : [];
    const shape = shapeOf(items, path);
    const content = shape ?? JSON.stringify(items);
    if (content === last) return;
    last = content;
    const isRepeated = shape !== null;
    if (!node.firstChild || isRepeated || wasRepeated) node.replaceChildren(createList(items, path));
    else morph(node.firstChild, createList(items, null));
    wasRepeated = isRepeated;
  };
  return { node, update };
}

/** Draw an object: its plain values together, then each other member in a section of its own. */
function drawMembers(path: Parts, depth: number): Drawing {
  const fields = create("div", depth ? "" : "part fields");
  const node = create("div", "", fields);
  const plain = new Map<string, Element>(); // by member name
  const sections = new Map<string, Element>();
  const isInUseIn = (nodes: ReadonlyMap<string, Element>, name: string): boolean => {
    const member = nodes.get(name);
    return member !== undefined && isInUse(member);
  };
  const isPlain = (value: unknown, name: string): boolean => {
    if (isInUseIn(sections, name)) return false;
    if (isInUseIn(plain, name)) return true;
    return !isResultPath([...path, name]) && (typeof value !== "object" || value === null);
  };
  const update = (value: unknown): void => {
    const all = isObject(value) ? value : {};
    const names = Object.keys(all);
    const plainNames = new Set(names.filter((name) => isPlain(all[name], name)));
    const sectionNames = new Set(names.filter((name) => !plainNames.has(name)));
    removeUnused(plain, plainNames);
    removeUnused(sections, sectionNames);
    for (const name of plainNames) {
      plain.set(name, nodeFor(plain.get(name), all[name], [...path, name], depth + 1));
    }
    for (const name of sectionNames) {
      sections.set(name, sectionFor(sections.get(name), name, all[name], [...path, name], depth + 1));
    }
    fields.hidden = !plain.size;
    arrange(fields, inOrder(plain, names));
    arrange(node, [fields, ...inOrder(sections, names)]);
  };
  return { node, update };
}

function removeUnused(nodes: Map<string, Element>, expected: ReadonlySet<string>): void {
  for (const [name, child] of nodes) if (!expected.has(name) && !isInUse(child)) nodes.delete(name);
}

/** Return the nodes in the order of the names; removed members whose field is in use come last. */
const inOrder = (nodes: ReadonlyMap<string, Element>, names: readonly string[]): Element[] =>
  [...names, ...nodes.keys()].flatMap((name) => nodes.get(name) ?? []);

function sectionFor(
  before: Element | undefined,
  name: string,
  value: unknown,
  path: Parts,
  depth: number,
): Element {
  const node = before ?? create("section", "part", create("h2", "", toLabel(name)));
  node.setAttribute("data-member", name);
  const [, inner] = node.children;
  const content = nodeFor(inner, value, path, depth);
  if (inner && inner !== content) inner.replaceWith(content);
  else if (!inner) node.append(content);
  return node;
}

let root: Element | undefined;

/** Draw the state into an element. */
export function drawState(state: unknown, parent: Element): void {
  isRedrawDue = false;
  const node = nodeFor(root, state, [], 0);
  if (node !== root) parent.replaceChildren(node);
  root = node;
  if (movedCaret) moveCaret(movedCaret);
  movedCaret = null;
}

/** Return whether a field that was in use keeps another kind than its value has. */
export const isDrawingDue = (): boolean => isRedrawDue;
