// Broken bindings: attributes `data-gsv-…` that cannot work, with their places, their problems and the
// nearest known words. The attributes of a list's template are checked once and not for each row.

const MAX_LISTED_NAMES = 12;
const OUTSIDE = "“item” and “index” are known only inside an element with data-gsv-each.";
const NO_PATH = "A path must begin with “state.”, or in a list with “item.” or “index”, and continue with "
  + "names between single dots.";
let lastBroken = "[]";

function reportBroken() {
  const broken = [];
  const check = (tag, hooks, template, isRepeated = false) => {
    for (const hook of hooks) {
      const message = problemOf(hook, { tag, hooks, template, isRepeated });
      if (message && broken.length < MAX_PROBLEMS) broken.push({ place: placeOf(tag, hook), message });
    }
  };
  const checkTemplate = (template, outer) => {
    const own = template.hooks.filter(({ kind }) => LIST_HOOKS.has(kind));
    const problem = listProblem(template);
    check(template.tag, own, outer, true);
    if (problem) broken.push({ place: placeOf(template.tag, own[0]), message: problem });
    for (const { tag, hooks } of template.bound) check(tag, hooks, template);
    for (const { template: inner } of template.inner) checkTemplate(inner, template);
  };
  for (const { element, hooks } of page.bounds.values()) check(element.localName, hooks, null);
  for (const template of new Set([...page.lists].map((list) => list.template))) checkTemplate(template, null);
  const text = JSON.stringify(broken.slice(0, MAX_PROBLEMS));
  if (text === lastBroken) return;
  lastBroken = text;
  send("broken", { broken: JSON.parse(text) });
}

const LIST_HOOKS = new Set(["each", "key", "limit"]);

/** By kind: return the problem of a parsed attribute, or null. */
const CHECKS = {
  action({ value }) {
    const { actions } = known.info;
    if (actions.includes(value)) return null;
    return `There is no action “${value}”. ${listNames("The spec has", actions)}`;
  },
  control({ value }) {
    const names = Object.keys(known.info.bindings);
    if (names.includes(value)) return null;
    return `There is no binding “${value}”. ${listNames("The spec binds", names)}`;
  },
  model(hook, place) {
    if (!hook.path) return NO_PATH;
    if (!["input", "select", "textarea"].includes(place.tag)) {
      return "Only input, select and textarea can be bound to the state; to show a value, use data-gsv-text.";
    }
    if (!isWritablePath(hook.path, place.template)) {
      return "A page must not write here: neither the spec's state nor “writable” names it.";
    }
    const { root, parts } = hook.path;
    if (root === "item" && place.template?.key && startsWith(place.template.key, parts)) {
      return "It is the key of its item: each entry replaces the row. Use another member as data-gsv-key.";
    }
    return pathProblem(hook, place);
  },
  attr: (hook, place) => refusalOf(place.tag, hook.name) ?? pathProblem(hook, place),
  each(hook, place) {
    if (!place.isRepeated) return `A <${place.tag}> cannot be repeated; repeat an element inside the body.`;
    return pathProblem(hook, place);
  },
  key({ value }, { isRepeated }) {
    if (!isRepeated) return "It has an effect only beside data-gsv-each.";
    return parseKey(value) ? null : "A key must be a name or a path in the item, such as “id”.";
  },
  limit({ value }, { isRepeated }) {
    if (!isRepeated) return "It has an effect only beside data-gsv-each.";
    return LIMIT.test(value) ? null : "A limit must be a number.";
  },
  format({ value }, { hooks }) {
    if (!hooks.some(({ kind }) => kind === "text")) return "It has an effect only beside data-gsv-text.";
    const name = value.trim();
    if (Object.hasOwn(FORMATS, name)) return null;
    return `There is no format “${name}”. ${listNames("The formats are", Object.keys(FORMATS))}`;
  },
  input({ name, value }) {
    if (!value.includes(".") || !parsePath(value)) return null;
    return `It sends the text “${value}”. To send the value of a path, use data-gsv-value-${name}.`;
  },
  unknown({ hook }) {
    const word = hook.slice(PREFIX.length);
    const names = [...PLAIN_HOOKS, ...NAMED_HOOKS.map((name) => `${name}-NAME`)];
    const near = names.find((name) => name === `${word.replace(/-$/, "")}-NAME`)
      ?? nearestWord(word.split("-")[0], names, (name) => name.split("-")[0]);
    return `There is no attribute “${hook}”.${near ? ` Did you mean “${PREFIX}${near}”?` : ""}`;
  },
};

const problemOf = (hook, place) => (CHECKS[hook.kind] ?? pathProblem)(hook, place);

function isWritablePath({ root, parts }, template) {
  const { writable } = known.info;
  const isWritable = (place) => place.length > 0 && writable.some((path) => startsWith(place, path));
  if (root === "state") return isWritable(parts);
  if (root === "index") return false;
  // Without a row there is nothing to write yet; outside of a list the path itself is the problem.
  return [...template?.lists ?? []].every((list) => list.parts && isWritable([...list.parts, "0", ...parts]));
}

/** Return the problem of a list as a whole, or null. */
function listProblem({ lists, key }) {
  const name = key?.join(".") || "item";
  for (const { found, repeatedKey, keylessIndex } of lists) {
    if (found !== MISSING && found !== null && !Array.isArray(found)) {
      return `It is ${typeName(found)}, and only a list can be repeated.`;
    }
    if (repeatedKey !== MISSING) {
      const text = `Two items have the key (“${name}”) “${repeatedKey}”.`;
      return `${text} The later one is matched by its position.`;
    }
    if (keylessIndex >= 0) {
      return `The item at index ${keylessIndex} has no key (“${name}”). It is matched by its position.`;
    }
  }
  return null;
}

const typeName = (value) => (
  { string: "a text", number: "a number", boolean: "true or false", object: "an object" }[typeof value]
);

// --- paths -------------------------------------------------------------------------------------------------

/** Return the problem of a path that does not exist, or null. */
function pathProblem({ path }, { template }) {
  if (!path) return NO_PATH;
  const { root, parts } = path;
  if (root === "state") {
    if (isExpected(parts, known.info.saves)) return null;
    const near = nearestPath(known.state, parts);
    return `The state has no “${parts.join(".")}”, and no action saves there.${suggest(near, "state")}`;
  }
  if (!template) return OUTSIDE;
  let last = MISSING;
  for (const { items } of template.lists) {
    for (const item of items) {
      if (root === "index" || leadsOn(item, parts)) return null;
      last = item;
    }
  }
  if (last === MISSING) return null; // a path is checked when there is an item
  return `No item of the list has “${parts.join(".")}”.${suggest(nearestPath(last, parts), "item")}`;
}

/** Return whether a path exists, is still empty, or is where an action saves its result. */
function isExpected(parts, saves) {
  if (saves.some((path) => startsWith(parts, path) || startsWith(path, parts))) return true;
  return leadsOn(known.state, parts);
}

/** Return whether a path exists in a value, or meets null on its way. */
function leadsOn(root, parts) {
  for (let depth = 1; depth <= parts.length; depth += 1) {
    const value = resolvePath(root, parts.slice(0, depth));
    if (value === MISSING) return false;
    if (value === null) return true;
  }
  return true;
}

function listNames(intro, names) {
  if (!names.length) return `${intro} none.`;
  const more = names.length > MAX_LISTED_NAMES ? ", …" : "";
  return `${intro} ${names.slice(0, MAX_LISTED_NAMES).join(", ")}${more}.`;
}

// --- the nearest known word --------------------------------------------------------------------------------

const suggest = (parts, root) => (parts ? ` Did you mean “${[root, ...parts].join(".")}”?` : "");

/** Return the path with its first unknown part replaced by the nearest name there, or null. */
function nearestPath(root, parts) {
  let value = root;
  for (let depth = 0; depth < parts.length; depth += 1) {
    const next = resolvePath(value, [parts[depth]]);
    if (next === MISSING) {
      const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
      const near = isObject ? nearestWord(parts[depth], Object.keys(value).filter(isPart)) : null;
      return near && [...parts.slice(0, depth), near, ...parts.slice(depth + 1)];
    }
    value = next;
  }
  return null;
}

/** Return the word with the fewest different letters, or null if none is similar. */
function nearestWord(word, names, wordOf = (name) => name) {
  let [nearest, least] = [null, Math.max(1, Math.floor(word.length / 3)) + 1];
  for (const name of names) {
    const distance = editDistance(word.toLowerCase(), wordOf(name).toLowerCase());
    if (distance < least) [nearest, least] = [name, distance];
  }
  return nearest;
}

/** Return how many letters differ between two words: added, removed, replaced, or exchanged with the next. */
function editDistance(first, second) {
  let [before, row] = [[], Array.from({ length: second.length + 1 }, (_, index) => index)];
  for (let at = 1; at <= first.length; at += 1) {
    const next = [at];
    for (let to = 1; to <= second.length; to += 1) {
      const isSame = first[at - 1] === second[to - 1];
      next[to] = Math.min(next[to - 1] + 1, row[to] + 1, row[to - 1] + (isSame ? 0 : 1));
      const isExchange = first[at - 1] === second[to - 2] && first[at - 2] === second[to - 1];
      if (at > 1 && to > 1 && isExchange) next[to] = Math.min(next[to], before[to - 2] + 1);
    }
    [before, row] = [row, next];
  }
  return row[second.length];
}
