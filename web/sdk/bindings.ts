// Which elements of the page have attributes `data-gsv-…`, and when these are evaluated.
//
// Values are inserted as text, so nothing in a state becomes HTML. All bindings are evaluated again whenever
// the state or the page changes, so elements that a script adds later are bound too.

import { PREFIX, parseAttribute } from "./attributes";
import { childNodesOf, closestTo, isMarkedBy, isMatch, parentOf } from "./dom";
import { List, listOf } from "./lists";
import { reportBroken } from "./problems";
import { page, rowOf, type Scope, scopeOf } from "./scopes";
import { EACH, Template } from "./templates";

const OBSERVED = { childList: true, subtree: true, attributes: true };
const incomplete = new Set<Element>(); // with `data-gsv-each`, which the parser may still be filling

const observer = new MutationObserver((records) => {
  bindChanges(records);
  render();
});

export function observePage(): void {
  observer.observe(document, OBSERVED);
  document.addEventListener("readystatechange", render);
}

export function render(): void {
  bindChanges(observer.takeRecords());
  observer.disconnect(); // ignore our own changes
  try {
    for (const element of incomplete) if (isComplete(element)) startList(element);
    for (const element of page.bounds.keys()) if (!element.isConnected) page.bounds.delete(element);
    for (const list of page.lists) if (!list.marker.isConnected) page.lists.delete(list);
    page.update();
  } finally {
    observer.observe(document, OBSERVED);
  }
  reportBroken();
}

/** Bind what scripts or the parser have added or changed. */
function bindChanges(records: readonly MutationRecord[]): void {
  for (const { target, addedNodes, attributeName } of records) {
    if (!target.isConnected) continue;
    if (attributeName !== null) changeAttribute(target, attributeName);
    else {
      if (target instanceof Element) scopeOf(target).bounds.get(target)?.forgetText();
      for (const node of addedNodes) bindAdded(node);
    }
  }
}

function bindAdded(node: Node): void {
  if (node.isConnected && !isInTemplate(parentOf(node))) bindTree(node, scopeOf(parentOf(node)));
}

const isInTemplate = (node: Node | null): boolean =>
  node instanceof Element && closestTo(node, `[${EACH}]`) !== null;

function changeAttribute(element: Node, name: string): void {
  if (!(element instanceof Element) || !name.startsWith(PREFIX)) return;
  if (parseAttribute(name, "").kind === "status" || isInTemplate(parentOf(element))) return;
  const scope = scopeOf(element);
  scope.bounds.delete(element);
  bindTree(element, scope);
}

/** Bind a node and everything in it. Rows of a list are bound already. */
function bindTree(node: Node, scope: Scope): void {
  const list = listOf.get(node);
  list?.scope.lists.add(list); // it was removed and is back
  if (!(node instanceof Element)) return;
  const row = rowOf.get(node);
  if (row && row !== scope) return;
  if (isMarkedBy(node, EACH)) {
    incomplete.add(node);
    return;
  }
  if (!scope.bounds.has(node)) scope.bind(node);
  for (const child of [...childNodesOf(node)]) bindTree(child, scope);
}

/** Return whether the parser has read the end of an element. */
function isComplete(element: Element): boolean {
  if (document.readyState !== "loading") return true;
  for (let at: Node | null = element; at; at = parentOf(at)) if (at.nextSibling) return true;
  return false;
}

/** Make an element the template of a list. */
function startList(element: Element): void {
  incomplete.delete(element);
  if (!element.isConnected || !element.hasAttribute(EACH)) return;
  const scope = scopeOf(parentOf(element));
  scope.bounds.delete(element);
  if (isMatch(element, "html, head, body, template")) {
    scope.bind(element); // reported as a problem
    return;
  }
  const marker = document.createComment("");
  element.replaceWith(marker);
  scope.lists.add(new List(new Template(element), marker, scope));
}
