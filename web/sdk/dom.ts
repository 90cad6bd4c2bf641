// Members of DOM nodes, taken from their prototypes: a field named `attributes`, `matches` or `remove` hides
// this member of its form.

function getterOf<Owner extends object, Value>(prototype: Owner, name: keyof Owner): (owner: Owner) => Value {
  const getter = Object.getOwnPropertyDescriptor(prototype, name)?.get;
  if (!getter) throw new TypeError(`This browser has no ${String(name)}.`);
  return (owner) => getter.call(owner);
}

export const childNodesOf = getterOf<Node, NodeListOf<ChildNode>>(Node.prototype, "childNodes");
export const parentOf = getterOf<Node, ParentNode | null>(Node.prototype, "parentNode");
export const elementsOf = getterOf<HTMLFormElement, Iterable<Element>>(HTMLFormElement.prototype, "elements");

const { prototype } = Element;
const { getAttribute, getAttributeNames, hasAttribute, matches, closest, remove } = prototype;
const { contains } = Node.prototype;

export const attributeOf = (element: Element, name: string): string | null =>
  getAttribute.call(element, name);
export const attributeNamesOf = (element: Element): string[] => getAttributeNames.call(element);
export const isMarkedBy = (element: Element, name: string): boolean => hasAttribute.call(element, name);
export const isMatch = (element: Element, selector: string): boolean => matches.call(element, selector);
export const closestTo = (element: Element, selector: string): Element | null =>
  closest.call(element, selector);
export const isWithin = (node: Node, outer: Node): boolean => contains.call(outer, node);
export const removeElement = (element: Element): void => remove.call(element);
