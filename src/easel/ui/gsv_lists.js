// `data-gsv-each`: an element that is repeated for each item of a list.
//
// The element itself is the template: it is taken out of the page, and a comment marks its place. Rows are
// matched by `data-gsv-key`. A row keeps its element, and with it focus, selection, scroll position and
// entries, for as long as its item exists. The rows of a list are in one parent, before the comment.

const rowOf = new WeakMap(); // by element: the row whose root it is
const listOf = new WeakMap(); // by comment: the list whose end it marks
const EACH = `${PREFIX}each`;
const removeNode = methodOf("remove");
const LIMIT = /^\s*\d{1,9}\s*$/;
let rowCount = 0;

/** A part of the page in which paths are resolved: the page itself, or one row of a list. */
class Scope {
  item = MISSING;
  index = MISSING;
  bounds = new Map(); // by element
  lists = new Set();

  bind(element, hooks = hooksOf(element)) {
    if (hooks.length) this.bounds.set(element, new Bound(element, hooks, this));
    else this.bounds.delete(element);
  }

  update() {
    for (const list of this.lists) list.update();
    // After the lists: a select shows its value only when it has its options.
    for (const bound of this.bounds.values()) bound.update();
  }
}

const page = new Scope();

/** Return the scope of a node: its row, or the page. */
function scopeOf(node) {
  for (let at = node; at; at = parentOf(at)) if (rowOf.has(at)) return rowOf.get(at);
  return page;
}

/** An element and its parsed attributes. What did not change is not written again. */
class Bound {
  constructor(element, hooks, scope) {
    Object.assign(this, { element, hooks, scope });
    this.format = hooks.find(({ kind }) => kind === "format")?.value.trim() ?? null;
    this.shown = new Array(hooks.length).fill(NONE);
  }

  /** Write the text again with the next update, because a script has changed the content of the element. */
  forgetText() { this.hooks.forEach(({ kind }, at) => { if (kind === "text") this.shown[at] = NONE; }); }

  update() {
    const { element, hooks, scope, shown } = this;
    for (let at = 0; at < hooks.length; at += 1) {
      const hook = hooks[at];
      if (hook.kind === "model") showModel(element, scope, hook.path);
      else if (hook.kind === "action" || hook.kind === "control") showAction(element, scope);
      else if (hook.path !== null && hook.kind in WRITERS) {
        const value = valueAt(scope, hook.path);
        if (value === shown[at] && (typeof value !== "object" || value === null)) continue;
        shown[at] = value;
        WRITERS[hook.kind](element, value, hook, this.format);
      }
    }
  }
}

// --- templates ---------------------------------------------------------------------------------------------

/** The element that a list repeats, with the places of its bindings and of the lists inside it. */
class Template {
  bound = []; // {steps, tag, hooks}: steps lead from the root to the element, one child index each
  inner = []; // {steps, template}
  lists = new Set(); // those that exist

  constructor(element) {
    this.element = element;
    this.tag = element.localName;
    const attribute = (name) => element.getAttribute(`${PREFIX}${name}`);
    this.hooks = hooksOf(element);
    this.path = parsePath(attribute("each"));
    this.key = attribute("key") === null ? null : parseKey(attribute("key"));
    this.limit = LIMIT.test(attribute("limit")) ? Number(attribute("limit")) : Infinity;
    for (const name of ["each", "key", "limit"]) element.removeAttribute(`${PREFIX}${name}`);
    this.#compile(element, []);
  }

  #compile(node, steps) {
    const hooks = hooksOf(node);
    if (hooks.length) this.bound.push({ steps, tag: node.localName, hooks });
    [...childNodesOf(node)].forEach((child, index) => {
      if (!(child instanceof Element)) return;
      if (!hasAttribute.call(child, EACH)) return this.#compile(child, [...steps, index]);
      child.replaceWith(document.createComment(""));
      this.inner.push({ steps: [...steps, index], template: new Template(child) });
    });
  }
}

function follow(node, steps) {
  return steps.reduce((at, step) => childNodesOf(at)[step], node);
}

class Row extends Scope {
  modelKeys = new Set(); // of the fields in the row

  constructor(list, key) {
    super();
    rowCount += 1;
    Object.assign(this, { list, key, id: rowCount, position: -1 });
    this.node = list.template.element.cloneNode(true);
    rowOf.set(this.node, this);
    // All places are looked up before the first list adds rows, which would move them.
    const places = list.template.inner.map(({ steps, template }) => [follow(this.node, steps), template]);
    for (const { steps, hooks } of list.template.bound) this.bind(follow(this.node, steps), hooks);
    for (const [marker, template] of places) this.lists.add(new List(template, marker, this));
  }

  /** Return the place of the item in the state; null if the list is not in the state. */
  get parts() {
    const above = this.list.parts;
    return above && [...above, String(this.index)];
  }

  remove() {
    removeNode(this.node);
    this.close();
  }

  /** Forget what belongs to the row: its item is gone, or the list around it. */
  close() {
    closeModels(this);
    for (const list of this.lists) list.close();
  }
}

// --- lists -------------------------------------------------------------------------------------------------

class List {
  rows = [];
  items = [];
  found = MISSING; // the value of the path
  repeatedKey = MISSING; // of two items
  keylessIndex = -1; // of an item without a key
  #byKey = new Map();

  constructor(template, marker, scope) {
    Object.assign(this, { template, marker, scope });
    template.lists.add(this);
    listOf.set(marker, this);
  }

  /** Return the place of the list in the state; null if its path begins elsewhere. */
  get parts() {
    const { path } = this.template;
    if (path?.root === "state") return path.parts;
    const above = path?.root === "item" && this.scope !== page ? this.scope.parts : null;
    return above && [...above, ...path.parts];
  }

  update() {
    const { path, limit } = this.template;
    this.found = path === null ? MISSING : valueAt(this.scope, path);
    const all = Array.isArray(this.found) ? this.found : [];
    this.items = all.length > limit ? all.slice(0, limit) : all;
    const before = this.rows;
    this.#match();
    let isMoved = before.length !== this.rows.length;
    for (let at = 0; at < this.rows.length; at += 1) {
      this.rows[at].update();
      isMoved ||= this.rows[at] !== before[at];
    }
    if (isMoved) place(this.rows, this.marker);
  }

  /** Find or create the row of each item, and remove the rows of items that are gone. */
  #match() {
    const known = new Map();
    [this.repeatedKey, this.keylessIndex] = [MISSING, -1];
    const before = this.rows;
    this.rows = this.items.map((item, index) => {
      const key = this.#keyOf(item, index, known);
      const row = this.#byKey.get(key) ?? new Row(this, key);
      row.item = item;
      row.index = index;
      known.set(key, row);
      return row;
    });
    this.#byKey = known;
    for (const row of before) if (known.get(row.key) !== row) row.remove();
  }

  /** Return the key of an item. An item without a key, or with that of an earlier item, has its position. */
  #keyOf(item, index, taken) {
    if (this.template.key === null) return index;
    const key = resolvePath(item, this.template.key);
    if (!["string", "number", "boolean"].includes(typeof key)) {
      if (this.keylessIndex < 0) this.keylessIndex = index;
      return positionKey(index);
    }
    if (!taken.has(key)) return key;
    this.repeatedKey = key;
    return positionKey(index);
  }

  close() {
    this.template.lists.delete(this);
    for (const row of this.rows) row.close();
  }
}

/** Return the key of an item that is matched by its position. No item can have it as its own key. */
const positionKey = (index) => Symbol.for(`gsv:${index}`);

// --- the order of the rows ---------------------------------------------------------------------------------

/** Put the rows into their order, before the marker. Only rows that have to move are moved. */
function place(rows, marker) {
  const parent = marker.parentNode;
  if (!parent) return; // a script has removed the list
  let position = 0; // in the page, where a script may have moved rows
  for (let node = parent.firstChild; node && node !== marker; node = node.nextSibling) {
    const row = rowOf.get(node);
    if (row?.list.marker === marker) row.position = position += 1;
  }
  const staying = rowsThatStay(rows);
  let next = marker;
  for (const row of rows.toReversed()) {
    if (!staying.has(row)) insert(parent, row.node, next);
    next = row.node;
  }
  for (const row of rows) row.position = -1;
}

/** Insert or move a node. `moveBefore` keeps focus and scroll positions; not every browser has it. */
function insert(parent, node, next) {
  if (parent.moveBefore && node.isConnected && node.parentNode === parent) parent.moveBefore(node, next);
  else parent.insertBefore(node, next);
}

/**
 * Return the largest set of rows that can stay where they are. The row that has the focus or the selection is
 * one of them: the other rows move around it.
 */
function rowsThatStay(rows) {
  const pinned = pinnedRow(rows);
  const at = rows.indexOf(pinned);
  const candidates = rows.filter((row, index) => row.position >= 0
    && (!pinned || row === pinned || (index < at) === (row.position < pinned.position)));
  // The longest increasing subsequence of the old positions. `ends[n]` ends the best one of n + 1 rows.
  const ends = [];
  const previous = new Map();
  for (const row of candidates) {
    let [low, high] = [0, ends.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (ends[middle].position < row.position) low = middle + 1;
      else high = middle;
    }
    previous.set(row, ends[low - 1]);
    ends[low] = row;
  }
  const staying = new Set();
  for (let row = ends.at(-1); row; row = previous.get(row)) staying.add(row);
  return staying;
}

function pinnedRow(rows) {
  const { activeElement } = document;
  const used = activeElement && activeElement !== document.body ? activeElement : selectedNode;
  return used ? rows.find((row) => row.position >= 0 && contains(row.node, used)) : undefined;
}

// Where the selected text begins. Kept, because asking for it in the middle of an update causes a layout.
let selectedNode = null;
document.addEventListener("selectionchange", () => {
  const selection = document.getSelection();
  selectedNode = selection?.isCollapsed === false ? selection.anchorNode : null;
});
