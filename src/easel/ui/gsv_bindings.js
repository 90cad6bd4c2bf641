// The attributes `data-gsv-…` of the page: which elements have them, and when they are evaluated.
//
// Values are inserted as text, so nothing in a state becomes HTML. All bindings are evaluated again whenever
// the state or the page changes, so elements that a script adds later are bound too.

const incomplete = new Set(); // elements with `data-gsv-each` that the parser may still be filling

const observer = new MutationObserver((records) => {
  bindChanges(records);
  render();
});
const OBSERVED = { childList: true, subtree: true, attributes: true };
observer.observe(document, OBSERVED);

function render() {
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
  if (known.info) reportBroken();
}
afterState = render;
document.addEventListener("readystatechange", render);

/** Bind what scripts or the parser have added or changed. */
function bindChanges(records) {
  for (const { type, target, addedNodes, attributeName } of records) {
    if (!target.isConnected) continue;
    if (type === "attributes") changeAttribute(target, attributeName);
    else {
      scopeOf(target).bounds.get(target)?.forgetText();
      for (const node of addedNodes) {
        if (node.isConnected && !isInTemplate(parentOf(node))) bindTree(node, scopeOf(parentOf(node)));
      }
    }
  }
}

const isInTemplate = (node) => node instanceof Element && closest(node, `[${EACH}]`) !== null;

function changeAttribute(element, name) {
  if (!name.startsWith(PREFIX) || parseHook(name, "").kind === "status") return;
  if (isInTemplate(parentOf(element))) return;
  const scope = scopeOf(element);
  scope.bounds.delete(element);
  bindTree(element, scope);
}

/** Bind a node and everything in it. Rows of a list are bound already. */
function bindTree(node, scope) {
  if (listOf.has(node)) listOf.get(node).scope.lists.add(listOf.get(node)); // it was removed and is back
  if (!(node instanceof Element)) return;
  const row = rowOf.get(node);
  if (row && row !== scope) return;
  if (hasAttribute.call(node, EACH)) {
    incomplete.add(node);
    return;
  }
  if (!scope.bounds.has(node)) scope.bind(node);
  for (const child of [...childNodesOf(node)]) bindTree(child, scope);
}

/** Return whether the parser has read the end of an element. */
function isComplete(element) {
  if (document.readyState !== "loading") return true;
  for (let at = element; at; at = parentOf(at)) if (at.nextSibling) return true;
  return false;
}

/** Make an element the template of a list. */
function startList(element) {
  incomplete.delete(element);
  if (!element.isConnected || !element.hasAttribute(EACH)) return;
  const scope = scopeOf(parentOf(element));
  scope.bounds.delete(element);
  if (matches(element, "html, head, body, template")) return scope.bind(element); // reported as a problem
  const marker = document.createComment("");
  element.replaceWith(marker);
  scope.lists.add(new List(new Template(element), marker, scope));
}
