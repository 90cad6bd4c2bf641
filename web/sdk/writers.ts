// `data-gsv-text`, `-show`, `-hide`, `-attr-NAME`, `-class-NAME`: how a value of the state changes elements.
//
// A value never becomes HTML or a script. An attribute that could run or load code cannot be bound, and an
// address must have a scheme of the list.

import { type Attribute, type Kind, PREFIX, placeOf } from "./attributes";
import { reportProblem } from "./bridge";
import { formatText } from "./formats";
import { asText, isTruthy, MISSING } from "./values";

const words = (text: string): ReadonlySet<string> => new Set(text.split(" "));

const CLOSED_ELEMENTS = words(
  "script style link meta base iframe frame object embed template animate animatemotion animatetransform set",
);
const CLOSED_ATTRIBUTES = words("srcdoc srcset imagesrcset ping style is hidden class");
const ATTRIBUTE = /^[a-z_][\w.:-]*$/; // others cannot be set by a script in every browser
const INSTEAD = new Map([
  ["style", "use data-gsv-class-NAME"],
  ["class", "use data-gsv-class-NAME"],
  ["hidden", "use data-gsv-show or data-gsv-hide"],
]);
const ADDRESSES = words("href src xlink:href action formaction poster data cite background manifest");
const SCHEMES = words("http: https: mailto: tel: blob:");

/** Return why an attribute of an element cannot be bound, or null. */
export function refusalOf(tag: string, name: string): string | null {
  if (CLOSED_ELEMENTS.has(tag.toLowerCase())) return `The attributes of <${tag}> cannot be bound.`;
  const isHandler = name.startsWith("on");
  const isClosed =
    CLOSED_ATTRIBUTES.has(name) || isHandler || name.startsWith(PREFIX) || !ATTRIBUTE.test(name);
  if (!isClosed) return null;
  const hint = isHandler ? "use data-gsv-action" : INSTEAD.get(name);
  return `The attribute “${name}” cannot be bound${hint ? `: ${hint}` : ""}.`;
}

/** Return the scheme of an address that must not be used, or null. */
export function refusedScheme(text: string): string | null {
  if (/^\s*data:image\//i.test(text)) return null;
  let scheme: string;
  try {
    scheme = new URL(text, document.baseURI).protocol;
  } catch {
    return null; // no address: the browser does not load it either
  }
  return SCHEMES.has(scheme) ? null : scheme;
}

function writeAttribute(element: Element, value: unknown, attribute: Attribute): void {
  const { name } = attribute;
  if (refusalOf(element.localName, name)) return;
  const isAbsent = value === MISSING || value === null || value === false;
  const text = value === true ? "" : asText(value);
  const scheme = !isAbsent && ADDRESSES.has(name) ? refusedScheme(text) : null;
  if (scheme) {
    const place = placeOf(element.localName, attribute);
    reportProblem(place, `An address that begins with “${scheme}” is not allowed.`);
  }
  if (isAbsent || scheme) element.removeAttribute(name);
  else if (element.getAttribute(name) !== text) element.setAttribute(name, text);
}

/** Write a text. The text node stays if there is one, and with it a selection that begins before it. */
function writeText(element: Element, text: string): void {
  const node = element.firstChild;
  const isOnly = node instanceof Text && node.nextSibling === null;
  if (isOnly && text && node.data) {
    if (node.data !== text) node.data = text;
  } else if (element.textContent !== text) element.textContent = text;
}

/** Write a value to an element. `format` is the value of its `data-gsv-format`, or null. */
type Writer = (element: Element, value: unknown, attribute: Attribute, format: string | null) => void;

export const WRITERS: Readonly<Partial<Record<Kind, Writer>>> = {
  text: (element, value, _, format) => writeText(element, formatText(value, format)),
  show: (element, value) => element.toggleAttribute("hidden", !isTruthy(value)),
  hide: (element, value) => element.toggleAttribute("hidden", isTruthy(value)),
  attr: writeAttribute,
  class: (element, value, { name }) => element.classList.toggle(name, isTruthy(value)),
};

/** Hide templates, even while the page is loaded, and hidden elements whatever the page's styles say. */
export function addStyles(): void {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(
    "[data-gsv-each], [data-gsv-show][hidden], [data-gsv-hide][hidden] { display: none !important; }",
  );
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
}
