/** Return the first element of an HTML text, in the document. */
export function createElement(html: string): Element {
  document.body.innerHTML = html;
  const element = document.body.firstElementChild;
  if (!element) throw new Error(`No element in ${html}`);
  return element;
}

export function createField(html: string): HTMLInputElement {
  const element = createElement(html);
  if (!(element instanceof HTMLInputElement)) throw new Error(`No input in ${html}`);
  return element;
}
