// Paths as a page writes them: `state.deploy.status`, and inside a list `item.name` and `index`. Resolved in
// plain data, never in a prototype.

const UNSAFE = /^(?:__.*|constructor|prototype)$/;
const PART = /^[\p{L}\p{N}_-]{1,128}$/u;
const ARRAY_INDEX = /^(?:0|[1-9]\d*)$/;
const MISSING = Symbol("missing");

const isPart = (part) => PART.test(part) && !UNSAFE.test(part);

/** Return the root and the parts of a path, or null if the text is not a path. */
function parsePath(text) {
  const [root, ...parts] = text.trim().split(".");
  const isRoot = root === "state" || root === "item" || (root === "index" && !parts.length);
  return isRoot && parts.every(isPart) ? { root, parts } : null;
}

/** Return the parts of `data-gsv-key`, a path below the item: `id`, `item.id`, or `item` for itself. */
function parseKey(text) {
  const parts = text.trim().split(".");
  if (parts[0] === "item") parts.shift();
  return parts.every(isPart) ? parts : null;
}

/** Return the value of a path in a scope: the page, or one row of a list. */
function valueAt(scope, { root, parts }) {
  if (root === "index") return scope.index;
  return resolvePath(root === "state" ? known.state : scope.item, parts);
}

/** Return the value at a path, or `MISSING`. */
function resolvePath(root, parts) {
  let value = root;
  for (const part of parts) {
    const isContainer = value !== null && typeof value === "object" && Object.hasOwn(value, part);
    if (!isContainer || (Array.isArray(value) && !ARRAY_INDEX.test(part))) return MISSING;
    value = value[part];
  }
  return value;
}

const toPointer = (parts) => (
  parts.map((part) => `/${part.replaceAll("~", "~0").replaceAll("/", "~1")}`).join("")
);

const startsWith = (parts, prefix) => prefix.every((part, index) => parts[index] === part);

/** Return whether a value counts as true: empty texts, lists and objects do not. */
function isTruthy(value) {
  if (value === MISSING || !value) return false;
  return typeof value !== "object" || Object.keys(value).length > 0;
}

/** Return a value as text: objects as JSON, missing values and null as an empty text. */
function asText(value) {
  if (value === MISSING || value === null || value === undefined) return "";
  return typeof value === "object" ? JSON.stringify(value, null, 2) : String(value);
}

function isEqual(first, second) {
  if (first === second) return true;
  if (typeof first !== "object" || typeof second !== "object" || first === null || second === null) {
    return false;
  }
  if (Array.isArray(first) !== Array.isArray(second)) return false;
  const names = Object.keys(first);
  return names.length === Object.keys(second).length
    && names.every((name) => Object.hasOwn(second, name) && isEqual(first[name], second[name]));
}

function deepFreeze(value) {
  if (value !== null && typeof value === "object" && !Object.isFrozen(value)) {
    Object.freeze(value);
    Object.values(value).forEach(deepFreeze);
  }
  return value;
}
