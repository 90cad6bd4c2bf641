// `data-gsv-text`, `-show`, `-hide`, `-attr-NAME`, `-class-NAME`: how a value of the state changes elements.
//
// A value never becomes HTML or a script. An attribute that could run or load code cannot be bound, and an
// address must have a scheme of the list.

const PREFIX = "data-gsv-";
const PLAIN_HOOKS = ["text", "show", "hide", "model", "action", "control", "each", "key", "limit", "format"];
const NAMED_HOOKS = ["attr", "class", "input", "value"]; // with a name behind them: data-gsv-attr-NAME
// Set by the SDK, for the page's CSS.
const STATUS_HOOKS = ["status", "unsaved", "conflict", "problem", "half", "shut"];
const WITH_PATH = new Set(["text", "show", "hide", "model", "each", "attr", "class", "value"]);

/** Return a parsed attribute `data-gsv-…`: what it does (`kind`), its `name`, and its `path` or null. */
function parseHook(hook, value) {
  const word = hook.slice(PREFIX.length);
  const parsed = { hook, value, kind: "unknown", name: "", path: null };
  if (PLAIN_HOOKS.includes(word)) parsed.kind = word;
  else if (STATUS_HOOKS.includes(word)) parsed.kind = "status";
  else {
    const [kind] = word.split("-", 1);
    const name = word.slice(kind.length + 1);
    if (name && NAMED_HOOKS.includes(kind)) Object.assign(parsed, { kind, name });
  }
  if (WITH_PATH.has(parsed.kind)) parsed.path = parsePath(value);
  return parsed;
}

// A field named `attributes`, `matches` or `remove` hides this member of its form.
const getterOf = (name) => {
  const { get } = Object.getOwnPropertyDescriptor(Node.prototype, name);
  return (node) => get.call(node);
};
const [childNodesOf, parentOf] = [getterOf("childNodes"), getterOf("parentNode")];
const { getAttribute, getAttributeNames, hasAttribute } = Element.prototype;
const methodOf = (name) => {
  const method = Element.prototype[name];
  return (element, ...values) => method.apply(element, values);
};
const [matches, closest, contains] = [methodOf("matches"), methodOf("closest"), methodOf("contains")];

/** Return the parsed attributes `data-gsv-…` of an element, without those that the SDK sets. */
function hooksOf(element) {
  return getAttributeNames.call(element)
    .filter((name) => name.startsWith(PREFIX))
    .map((name) => parseHook(name, getAttribute.call(element, name)))
    .filter(({ kind }) => kind !== "status");
}

const placeOf = (tag, { hook, value }) => `<${tag} ${hook}="${value.slice(0, 120)}">`;

// --- which attributes can be bound -------------------------------------------------------------------------

const CLOSED_ELEMENTS = new Set([
  "script", "style", "link", "meta", "base", "iframe", "frame", "object", "embed", "template",
  "animate", "animatemotion", "animatetransform", "set",
]);
const CLOSED_ATTRIBUTES = new Set([
  "srcdoc", "srcset", "imagesrcset", "ping", "style", "is", "hidden", "class",
]);
const ATTRIBUTE = /^[a-z_][\w.:-]*$/; // others cannot be set by a script in every browser
const INSTEAD = {
  style: "use data-gsv-class-NAME",
  class: "use data-gsv-class-NAME",
  hidden: "use data-gsv-show or data-gsv-hide",
};
const ADDRESSES = new Set([
  "href", "src", "xlink:href", "action", "formaction", "poster", "data", "cite", "background", "manifest",
]);
const SCHEMES = new Set(["http:", "https:", "mailto:", "tel:", "blob:"]);

/** Return why an attribute of an element cannot be bound, or null. */
function refusalOf(tag, name) {
  if (CLOSED_ELEMENTS.has(tag.toLowerCase())) return `The attributes of <${tag}> cannot be bound.`;
  const isClosed = CLOSED_ATTRIBUTES.has(name) || name.startsWith("on") || name.startsWith(PREFIX)
    || !ATTRIBUTE.test(name);
  if (!isClosed) return null;
  const hint = name.startsWith("on") ? "use data-gsv-action" : INSTEAD[name];
  return `The attribute “${name}” cannot be bound${hint ? `: ${hint}` : ""}.`;
}

/** Return the scheme of an address that must not be used, or null. */
function refusedScheme(text) {
  if (/^\s*data:image\//i.test(text)) return null;
  let scheme;
  try {
    scheme = new URL(text, document.baseURI).protocol;
  } catch {
    return null; // no address: the browser does not load it either
  }
  return SCHEMES.has(scheme) ? null : scheme;
}

// --- writing -----------------------------------------------------------------------------------------------

function writeAttribute(element, value, hook) {
  const { name } = hook;
  if (refusalOf(element.localName, name)) return;
  const isAbsent = value === MISSING || value === null || value === false;
  const text = value === true ? "" : asText(value);
  const scheme = !isAbsent && ADDRESSES.has(name) ? refusedScheme(text) : null;
  if (scheme) {
    const place = placeOf(element.localName, hook);
    reportProblem(place, `An address that begins with “${scheme}” is not allowed.`);
  }
  if (isAbsent || scheme) element.removeAttribute(name);
  else if (element.getAttribute(name) !== text) element.setAttribute(name, text);
}

/** Write a text. The text node stays if there is one, and with it a selection that begins before it. */
function writeText(element, text) {
  const node = element.firstChild;
  const isOnly = node?.nodeType === Node.TEXT_NODE && node.nextSibling === null;
  if (isOnly && text && node.data) {
    if (node.data !== text) node.data = text;
  } else if (element.textContent !== text) element.textContent = text;
}

/** By kind: write a value to an element. `format` is the value of its `data-gsv-format`, or null. */
const WRITERS = {
  text: (element, value, _, format) => writeText(element, formatText(value, format)),
  show: (element, value) => element.toggleAttribute("hidden", !isTruthy(value)),
  hide: (element, value) => element.toggleAttribute("hidden", isTruthy(value)),
  attr: writeAttribute,
  class: (element, value, { name }) => element.classList.toggle(name, isTruthy(value)),
};

// A template is never shown, not even while the page is loaded, and a style of the page does not show a
// hidden element.
const sheet = new CSSStyleSheet();
sheet.replaceSync(
  "[data-gsv-each], [data-gsv-show][hidden], [data-gsv-hide][hidden] { display: none !important; }",
);
document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
