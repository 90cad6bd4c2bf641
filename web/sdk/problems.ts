// Broken bindings: attributes `data-gsv-…` that cannot work, with their places, their problems and the
// nearest known words. The attributes of a list's template are checked once and not for each row.

import { type Attribute, type Kind, NAMED_KINDS, PLAIN_KINDS, PREFIX, placeOf } from "./attributes";
import { known, MAX_PROBLEMS, send } from "./bridge";
import { FORMAT_NAMES } from "./formats";
import type { List } from "./lists";
import type { PageInfo } from "./messages";
import { nearestPath, nearestWord } from "./nearest";
import { type Parts, type Path, parseKey, parsePath, resolvePath, startsWith } from "./paths";
import { page } from "./scopes";
import { isLimit, LIST_KINDS, type Template } from "./templates";
import { MISSING } from "./values";
import { refusalOf } from "./writers";

const MAX_LISTED_NAMES = 12;
const OUTSIDE = "“item” and “index” are known only inside an element with data-gsv-each.";
const NO_PATH =
  "A path must begin with “state.”, or in a list with “item.” or “index”, and continue with " +
  "names between single dots.";
const ONLY_BESIDE_EACH = "It has an effect only beside data-gsv-each.";

interface Broken {
  readonly place: string;
  readonly message: string;
}

/** The element of an attribute, as its check needs it. */
interface Place {
  readonly info: PageInfo;
  readonly tag: string;
  readonly attributes: readonly Attribute[];
  readonly template: Template | null; // around the element
  readonly isRepeated: boolean;
}

let lastBroken = "[]";

/** Report the broken bindings of the page to the shell, if they have changed. */
export function reportBroken(): void {
  if (!known.info) return;
  const text = JSON.stringify(findBroken(known.info).slice(0, MAX_PROBLEMS));
  if (text === lastBroken) return;
  lastBroken = text;
  send("broken", { broken: JSON.parse(text) });
}

function findBroken(info: PageInfo): Broken[] {
  const broken: Broken[] = [];
  const check = (place: Omit<Place, "info">, checked = place.attributes): void => {
    for (const attribute of checked) {
      if (broken.length >= MAX_PROBLEMS) return;
      const message = problemOf(attribute, { ...place, info });
      if (message) broken.push({ place: placeOf(place.tag, attribute), message });
    }
  };
  const checkTemplate = (template: Template, outer: Template | null): void => {
    const own = template.attributes.filter(({ kind }) => LIST_KINDS.some((name) => name === kind));
    check({ tag: template.tag, attributes: own, template: outer, isRepeated: true });
    const [problem, first] = [listProblem(template), own[0]];
    if (problem && first) broken.push({ place: placeOf(template.tag, first), message: problem });
    for (const { tag, attributes } of template.bound) check({ tag, attributes, template, isRepeated: false });
    for (const { template: inner } of template.inner) checkTemplate(inner, template);
  };
  for (const { element, attributes } of page.bounds.values()) {
    check({ tag: element.localName, attributes, template: null, isRepeated: false });
  }
  for (const template of new Set([...page.lists].map((list) => list.template))) checkTemplate(template, null);
  return broken;
}

/** Return the problem of a parsed attribute, or null. */
type Check = (attribute: Attribute, place: Place) => string | null;

const CHECKS: Readonly<Partial<Record<Kind, Check>>> = {
  action: ({ value }, { info: { actions } }) =>
    actions.includes(value) ? null : `There is no action “${value}”. ${listNames("The spec has", actions)}`,
  control({ value }, { info }) {
    const names = Object.keys(info.bindings);
    if (names.includes(value)) return null;
    return `There is no binding “${value}”. ${listNames("The spec binds", names)}`;
  },
  model: checkModel,
  attr: (attribute, place) => refusalOf(place.tag, attribute.name) ?? checkPath(attribute, place),
  each(attribute, place) {
    if (place.isRepeated) return checkPath(attribute, place);
    return `A <${place.tag}> cannot be repeated; repeat an element inside the body.`;
  },
  key({ value }, { isRepeated }) {
    if (!isRepeated) return ONLY_BESIDE_EACH;
    return parseKey(value) ? null : "A key must be a name or a path in the item, such as “id”.";
  },
  limit({ value }, { isRepeated }) {
    if (!isRepeated) return ONLY_BESIDE_EACH;
    return isLimit(value) ? null : "A limit must be a number.";
  },
  format({ value }, { attributes }) {
    if (!attributes.some(({ kind }) => kind === "text")) return "It has an effect only beside data-gsv-text.";
    const name = value.trim();
    if (FORMAT_NAMES.includes(name)) return null;
    return `There is no format “${name}”. ${listNames("The formats are", FORMAT_NAMES)}`;
  },
  input({ name, value }) {
    if (!value.includes(".") || !parsePath(value)) return null;
    return `It sends the text “${value}”. To send the value of a path, use data-gsv-value-${name}.`;
  },
  unknown({ attribute }) {
    const word = attribute.slice(PREFIX.length);
    const [first] = word.split("-", 1);
    const names = [...PLAIN_KINDS, ...NAMED_KINDS.map((name) => `${name}-NAME`)];
    const near =
      names.find((name) => name === `${word.replace(/-$/, "")}-NAME`) ??
      nearestWord(first ?? "", names, (name) => name.replace("-NAME", ""));
    return `There is no attribute “${attribute}”.${near ? ` Did you mean “${PREFIX}${near}”?` : ""}`;
  },
};

const problemOf: Check = (attribute, place) => (CHECKS[attribute.kind] ?? checkPath)(attribute, place);

function checkModel(attribute: Attribute, place: Place): string | null {
  const { path } = attribute;
  if (!path) return NO_PATH;
  if (!["input", "select", "textarea"].includes(place.tag)) {
    return "Only input, select and textarea can be bound to the state; to show a value, use data-gsv-text.";
  }
  if (!isWritablePath(path, place)) {
    return "A page must not write here: neither the spec's state nor “writable” names it.";
  }
  const key = place.template?.key;
  if (path.root === "item" && key && startsWith(key, path.parts)) {
    return "It is the key of its item: each entry replaces the row. Use another member as data-gsv-key.";
  }
  return checkPath(attribute, place);
}

function isWritablePath({ root, parts }: Path, { info, template }: Place): boolean {
  const isWritable = (place: Parts): boolean =>
    place.length > 0 && info.writable.some((path) => startsWith(place, path));
  if (root === "state") return isWritable(parts);
  if (root === "index") return false;
  // Without a row there is nothing to write yet; outside of a list the path itself is the problem.
  return [...(template?.lists ?? [])].every(
    (list) => list.parts !== null && isWritable([...list.parts, "0", ...parts]),
  );
}

/** Return the problem of a path that does not exist, or null. */
function checkPath({ path }: Attribute, { info, template }: Place): string | null {
  if (!path) return NO_PATH;
  const { root, parts } = path;
  if (root === "state") {
    if (isExpected(parts, info.saves)) return null;
    const near = nearestPath(known.state, parts);
    return `The state has no “${parts.join(".")}”, and no action saves there.${suggest(near, "state")}`;
  }
  if (!template) return OUTSIDE;
  let last: unknown = MISSING;
  for (const { items } of template.lists) {
    for (const item of items) {
      if (root === "index" || leadsOn(item, parts)) return null;
      last = item;
    }
  }
  if (last === MISSING) return null; // a path is checked when there is an item
  const near = nearestPath(last, parts);
  return `No item of the list has “${parts.join(".")}”.${suggest(near, "item")}`;
}

/** Return the problem of a list as a whole, or null. */
function listProblem({ lists, key }: Template): string | null {
  const name = key?.join(".") || "item";
  for (const list of lists) {
    const problem = itemsProblem(list, name);
    if (problem) return problem;
  }
  return null;
}

function itemsProblem({ found, repeatedKey, keylessIndex }: List, name: string): string | null {
  if (found !== MISSING && found !== null && !Array.isArray(found)) {
    return `It is ${typeName(found)}, and only a list can be repeated.`;
  }
  if (repeatedKey !== MISSING) {
    const text = `Two items have the key (“${name}”) “${String(repeatedKey)}”.`;
    return `${text} The later one is matched by its position.`;
  }
  if (keylessIndex < 0) return null;
  return `The item at index ${keylessIndex} has no key (“${name}”). It is matched by its position.`;
}

function typeName(value: unknown): string {
  if (typeof value === "string") return "a text";
  if (typeof value === "number") return "a number";
  return typeof value === "boolean" ? "true or false" : "an object";
}

/** Return whether a path exists, is still empty, or is where an action saves its result. */
function isExpected(parts: Parts, saves: readonly Parts[]): boolean {
  if (saves.some((path) => startsWith(parts, path) || startsWith(path, parts))) return true;
  return leadsOn(known.state, parts);
}

/** Return whether a path exists in a value, or meets null on its way. */
function leadsOn(root: unknown, parts: Parts): boolean {
  for (let depth = 1; depth <= parts.length; depth += 1) {
    const value = resolvePath(root, parts.slice(0, depth));
    if (value === MISSING) return false;
    if (value === null) return true;
  }
  return true;
}

function listNames(intro: string, names: readonly string[]): string {
  if (!names.length) return `${intro} none.`;
  const more = names.length > MAX_LISTED_NAMES ? ", …" : "";
  return `${intro} ${names.slice(0, MAX_LISTED_NAMES).join(", ")}${more}.`;
}

const suggest = (parts: Parts | null, root: string): string =>
  parts ? ` Did you mean “${[root, ...parts].join(".")}”?` : "";
