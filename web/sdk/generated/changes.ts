// Changes of existing nodes: parts that stay the same keep their focus, selection and scroll position.

/** Turn a node into another one and keep unchanged parts. */
export function morph(node: ChildNode, target: ChildNode): void {
  const isSameElement =
    !(node instanceof Element && target instanceof Element) || node.className === target.className;
  if (node.nodeName !== target.nodeName || !isSameElement) {
    node.replaceWith(target);
  } else if (node instanceof Text && target instanceof Text) {
    if (node.data !== target.data) node.data = target.data;
  } else {
    const [before, after] = [[...node.childNodes], [...target.childNodes]];
    for (const [index, child] of after.entries()) {
      const old = before[index];
      if (old) morph(old, child);
      else node.appendChild(child);
    }
    for (const child of before.slice(after.length)) child.remove();
  }
}

/** Make `nodes` the children of `parent`. The focused one is not moved, because it would lose the caret. */
export function arrange(parent: Element, nodes: readonly Element[]): void {
  const expected = new Set(nodes);
  for (const node of [...parent.children]) if (!expected.has(node)) node.remove();
  let next = parent.firstChild;
  for (const node of expected) {
    while (next && next !== node && node.contains(document.activeElement)) {
      const after: ChildNode | null = next.nextSibling;
      parent.append(next);
      next = after;
    }
    if (next === node) next = next.nextSibling;
    else parent.insertBefore(node, next);
  }
}
