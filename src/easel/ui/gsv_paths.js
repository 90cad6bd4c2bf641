// Places in a canvas's state, as a page names them: `state.deploy.status`. Followed through plain data only, never through a prototype.

const UNSAFE = /^(?:__.*|constructor|prototype)$/;
const PART = /^[\p{L}\p{N}_-]{1,128}$/u;
const MISSING = Symbol("missing");

/** The parts of a path below `state`, or null for what is no path. */
function parsed(text) {
  const [root, ...parts] = String(text).trim().split(".");
  return root === "state" && parts.every((part) => PART.test(part) && !UNSAFE.test(part)) ? parts : null;
}

/** What stands there; `MISSING` where nothing does. */
function found(value, parts) {
  let here = value;
  for (const part of parts) {
    const isThere = here !== null && typeof here === "object" && Object.hasOwn(here, part) && !(Array.isArray(here) && !/^(?:0|[1-9]\d*)$/.test(part));
    if (!isThere) return MISSING;
    here = here[part];
  }
  return here;
}

const pointer = (parts) => parts.map((part) => `/${part.replaceAll("~", "~0").replaceAll("/", "~1")}`).join("");

const begins = (parts, start) => start.every((part, place) => parts[place] === part);

/** A value as text: what is no text is shown as JSON, and nothing at all as nothing. */
function asText(value) {
  if (value === MISSING || value === null || value === undefined) return "";
  return typeof value === "object" ? JSON.stringify(value, null, 2) : String(value);
}

function isSame(one, other) {
  if (one === other) return true;
  if (typeof one !== "object" || typeof other !== "object" || one === null || other === null || Array.isArray(one) !== Array.isArray(other)) return false;
  const names = Object.keys(one);
  return names.length === Object.keys(other).length && names.every((name) => Object.hasOwn(other, name) && isSame(one[name], other[name]));
}

function frozen(value) {
  if (value !== null && typeof value === "object" && !Object.isFrozen(value)) {
    Object.freeze(value);
    Object.values(value).forEach(frozen);
  }
  return value;
}
