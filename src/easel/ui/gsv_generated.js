"use strict";
// Draws the generated page of a canvas: writable values as fields, saved results, lists of objects as tables.
// It uses the same API and hooks as any other page.
//
// A node is kept as long as the kind of its value stays the same, so that changes of other users do not
// disturb the focused field. A field keeps its kind, its caret and its entry until it has lost the focus and
// its entry is saved.
(() => {
  const { writable, results, saves, numbers } = JSON.parse(document.getElementById("paths").textContent);
  const LONG_TEXT = 80; // characters; a longer text gets a field with several lines
  const MAX_ROWS = 200;
  const MAX_RESULTS = 20; // shown of a list of results
  const MAX_DEPTH = 3; // deeper values are shown as JSON
  const BLUR_MS = 400; // wait after a field loses the focus: a button must not move while it is clicked
  const FIELDS = ["check", "number", "long", "short"];
  const NUMBER = /^\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?\s*$/i;
  const PART = /^[\p{L}\p{N}_-]{1,128}$/u;
  const TEMPLATE = Symbol("template"); // in place of any item of a list

  const create = (tag, className, ...children) => {
    const node = document.createElement(tag);
    if (className) node.className = className;
    node.append(...children);
    return node;
  };
  const startsWith = (path, prefix) => prefix.every((part, index) => path[index] === part);
  const isSamePath = (path, other) => path.length === other.length && startsWith(path, other);
  const isBindable = (path) => path.every((part) => PART.test(part));
  const isWritable = (path) => isBindable(path) && writable.some((prefix) => startsWith(path, prefix));
  const isResultPath = (path) => results.some((other) => isSamePath(path, other));
  const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
  const isResult = (value) => (
    isObject(value) && value.ok === true && "result" in value && "finishedAt" in value
  );
  const toLabel = (name) => {
    const words = name.replace(/([a-z0-9])([A-Z])/g, "$1 $2").replace(/[._:-]+/g, " ").trim();
    return words ? words[0].toUpperCase() + words.slice(1).toLowerCase() : name;
  };
  const toText = (value) => {
    if (value === null || value === undefined) return "";
    return typeof value === "object" ? JSON.stringify(value, null, 2) : String(value);
  };

  const isLongText = (value) => (
    typeof value === "string" && (value.length > LONG_TEXT || value.includes("\n"))
  );

  const isDeclaredNumber = (path) => numbers.some((other) => isSamePath(path, other));

  /**
   * Return how a value is drawn. An empty value keeps the kind of the value before it, or that of the spec.
   */
  function kindOf(value, path, depth, before) {
    if (isResultPath(path) || isResult(value)) return "result";
    if (Array.isArray(value)) return "list";
    if (isObject(value)) return depth >= MAX_DEPTH ? "json" : "members";
    if (!isWritable(path)) return "text";
    if (typeof value === "boolean") return "check";
    const isNumericText = isDeclaredNumber(path) && (value === null || NUMBER.test(value));
    if (typeof value === "number" || isNumericText) return "number";
    if (value === null && FIELDS.includes(before)) return before;
    return isLongText(value) ? "long" : "short";
  }

  function field(path, kind) {
    const input = create(kind === "long" ? "textarea" : "input", "");
    if (kind === "check") input.type = "checkbox";
    if (kind === "number") {
      Object.assign(input, { type: "number", step: "any", required: isDeclaredNumber(path) });
    }
    if (kind === "long" || kind === "short") input.dir = "auto";
    input.dataset.gsvModel = `state.${path.join(".")}`;
    const name = toLabel(path.at(-1));
    if (kind === "check") return create("label", "check", input, name);
    const label = create("label", kind === "long" ? "long" : "", name, input);
    if (kind !== "number") return label;
    const problem = create("span", "wrong");
    problem.setAttribute("role", "status");
    return create("div", "", label, problem);
  }

  function text(path, value) {
    const node = create("div", "value");
    if (isBindable(path)) node.dataset.gsvText = `state.${path.join(".")}`;
    else node.textContent = toText(value);
    return create("div", "", create("span", "name", toLabel(path.at(-1))), node);
  }

  const columnsOf = (rows) => [...new Set(rows.slice(0, MAX_ROWS).flatMap((row) => Object.keys(row)))];

  /** Return elements for the items of a list: one that the SDK repeats or, without a usable path, all. */
  function repeat(values, path, make, names = []) {
    if (!path || !isBindable([...path, ...names])) return values.slice(0, MAX_ROWS).map(make);
    const template = make(TEMPLATE);
    template.dataset.gsvEach = `state.${path.join(".")}`;
    template.dataset.gsvLimit = MAX_ROWS;
    return [template];
  }

  /** Return an element with a value of an item, or, for the SDK, with the path of the value. */
  function itemValue(tag, item, names) {
    const className = tag === "li" ? "value" : "";
    if (item !== TEMPLATE) {
      const member = (value, name) => (Object.hasOwn(value, name) ? value[name] : null);
      return create(tag, className, toText(names.reduce(member, item)));
    }
    const node = create(tag, className);
    node.dataset.gsvText = ["item", ...names].join(".");
    return node;
  }

  function table(rows, path) {
    const columns = columnsOf(rows);
    const head = create("tr", "", ...columns.map((name) => create("th", "", toLabel(name))));
    const bodyRow = (row) => create("tr", "", ...columns.map((name) => itemValue("td", row, [name])));
    const body = create("tbody", "", ...repeat(rows, path, bodyRow, columns));
    return create("div", "table", create("table", "", create("thead", "", head), body));
  }

  /** Return a list. `path` is its place in the state, or null if it is a part of a result. */
  function list(values, path = null) {
    if (!values.length) return create("p", "faint", "Nothing yet.");
    if (values.every(isResult)) return create("div", "", ...values.slice(-MAX_RESULTS).reverse().map(result));
    const items = () => repeat(values, path, (item) => itemValue("li", item, []));
    const node = values.every(isObject) ? table(values, path) : create("ul", "", ...items());
    if (values.length <= MAX_ROWS) return node;
    return create("div", "", node, create("p", "faint", `The first ${MAX_ROWS} of ${values.length}.`));
  }

  /**
   * Return, as JSON, what the SDK does not follow in a list that it repeats: a change of it needs a new
   * element. Null if the SDK does not repeat the list.
   */
  function shapeOf(values, path) {
    if (!values.length || values.every(isResult)) return null;
    const columns = values.every(isObject) ? columnsOf(values) : null;
    if (!isBindable([...path, ...columns ?? []])) return null;
    return JSON.stringify([columns, Math.max(values.length, MAX_ROWS)]);
  }

  function result(value) {
    if (value === null || value === undefined) return create("p", "faint", "Not run yet.");
    if (!isResult(value)) return Array.isArray(value) ? list(value) : create("pre", "value", toText(value));
    const finishedAt = new Date(value.finishedAt);
    const hasOutput = isObject(value.result) && typeof value.result.output === "string";
    const output = hasOutput ? value.result.output : toText(value.result);
    const time = Number.isNaN(finishedAt.getTime()) ? "" : `finished ${finishedAt.toLocaleString()}`;
    const notes = resultNotes(value.result).flatMap((note) => [create("span", "bad", note), " · "]);
    return create("div", "", create("pre", "value", output), create("p", "faint", ...notes, time));
  }

  /**
   * Return notes on a command's result that its output does not show: a failure, or that the output is cut.
   */
  function resultNotes(value) {
    if (!isObject(value) || !Object.hasOwn(value, "output")) return [];
    const { exit_code: code, stopped, reason, truncated } = value;
    const notes = [];
    if (stopped) notes.push(typeof reason === "string" ? reason : `stopped: ${toText(stopped)}`);
    else if (typeof code === "number" && code !== 0) notes.push(`exit code ${code}`);
    return truncated === true ? [...notes, "the output was cut"] : notes;
  }

  // --- following the state: existing nodes stay, above all a field in use

  const drawings = new WeakMap(); // by node: {kind, update(value)}
  let isRedrawDue = false; // a field in use has a value of another kind
  let isComposing = false;
  let movedCaret = null; // {to, from}: the field that replaces the focused one
  const isUnsaved = (node) => node.querySelector("[data-gsv-unsaved], [data-gsv-half]") !== null;
  const hasFocus = (node) => (
    document.activeElement.matches("[data-gsv-model]") && node.contains(document.activeElement)
  );
  const isInUse = (node) => {
    const inUse = hasFocus(node) || isUnsaved(node);
    isRedrawDue ||= inUse;
    return inUse;
  };

  /**
   * Return a node for a value: the existing one, updated, if it can show the value or is in use; else a new
   * one.
   */
  function nodeFor(before, value, path, depth) {
    const known = before ? drawings.get(before) : undefined;
    const kind = kindOf(value, path, depth, known?.kind);
    const growsOnOneLine = known?.kind === "short" && kind === "long" && !value.includes("\n");
    const fits = known?.kind === kind || (known?.kind === "long" && kind === "short") || growsOnOneLine;
    if (fits) known.update(value);
    // Another user added a line break: a one-line field would drop it with the next key.
    const needsLines = known?.kind === "short" && kind === "long" && !isUnsaved(before) && !isComposing;
    if (fits || (before && !needsLines && isInUse(before))) return before;
    const drawing = draw(kind, value, path, depth);
    drawing.update(value);
    drawings.set(drawing.node, { kind, update: drawing.update });
    if (needsLines && hasFocus(before)) {
      movedCaret = { to: drawing.node.querySelector("textarea"), from: document.activeElement };
    }
    return drawing.node;
  }

  /** Move the focus and the caret to the field that replaces the focused one. */
  function moveCaret({ to, from: { value, selectionStart, selectionEnd, selectionDirection } }) {
    to.value = value;
    to.focus({ preventScroll: true });
    to.setSelectionRange(selectionStart, selectionEnd, selectionDirection);
  }

  function draw(kind, value, path, depth) {
    if (kind === "members") return members(path, depth);
    if (FIELDS.includes(kind)) return { node: field(path, kind), update: () => {} }; // updated by the SDK
    if (kind === "text") {
      const node = text(path, value);
      const isBound = node.querySelector("[data-gsv-text]") !== null; // then the SDK updates it
      return { node, update: (now) => { if (!isBound) node.lastChild.textContent = toText(now); } };
    }
    const render = { result, list, json: (json) => create("pre", "value", toText(json)) }[kind];
    const node = create("div", "");
    let last;
    let wasRepeated = false;
    return { node, update: (now) => {
      const shape = kind === "list" ? shapeOf(now, path) : null;
      const content = shape ?? JSON.stringify(now) ?? "";
      if (content === last) return;
      last = content;
      const isRepeated = shape !== null;
      if (!node.firstChild || isRepeated || wasRepeated) node.replaceChildren(render(now, path));
      else morph(node.firstChild, render(now));
      wasRepeated = isRepeated;
    } };
  }

  /** Turn a node into another one and keep unchanged parts: a selection or a scroll position stays. */
  function morph(node, target) {
    if (node.nodeName !== target.nodeName || node.className !== target.className) {
      node.replaceWith(target);
    } else if (node.nodeType === Node.TEXT_NODE) {
      if (node.data !== target.data) node.data = target.data;
    } else {
      const [before, after] = [[...node.childNodes], [...target.childNodes]];
      after.forEach((child, index) => {
        if (index < before.length) morph(before[index], child);
        else node.append(child);
      });
      for (const child of before.slice(after.length)) child.remove();
    }
  }

  /** Draw an object: its plain values together, then each other member in a section of its own. */
  function members(path, depth) {
    const fields = create("div", depth ? "" : "part fields");
    const [node, plain, sections] = [create("div", "", fields), new Map(), new Map()]; // by member name
    const isInUseIn = (nodes, name) => nodes.has(name) && isInUse(nodes.get(name));
    const isPlain = (value, name) => {
      if (isInUseIn(sections, name)) return false;
      if (isInUseIn(plain, name)) return true;
      return !isResultPath([...path, name]) && (typeof value[name] !== "object" || value[name] === null);
    };
    const update = (value) => {
      const names = Object.keys(value);
      const plainNames = new Set(names.filter((name) => isPlain(value, name)));
      const sectionNames = new Set(names.filter((name) => !plainNames.has(name)));
      for (const [nodes, expected] of [[plain, plainNames], [sections, sectionNames]]) {
        for (const [name, child] of nodes) if (!expected.has(name) && !isInUse(child)) nodes.delete(name);
      }
      for (const name of plainNames) {
        plain.set(name, nodeFor(plain.get(name), value[name], [...path, name], depth + 1));
      }
      for (const name of sectionNames) {
        sections.set(name, section(sections.get(name), name, value[name], [...path, name], depth + 1));
      }
      fields.hidden = !plain.size;
      // Removed members whose field is in use come last.
      const inOrder = (nodes) => [...names, ...nodes.keys()].flatMap((name) => nodes.get(name) ?? []);
      arrange(fields, inOrder(plain));
      arrange(node, [fields, ...inOrder(sections)]);
    };
    return { node, update };
  }

  function section(before, name, value, path, depth) {
    const node = before ?? create("section", "part", create("h2", "", toLabel(name)));
    node.dataset.member = name;
    const [, inner] = node.children;
    const content = nodeFor(inner, value, path, depth);
    if (inner && inner !== content) inner.replaceWith(content);
    else if (!inner) node.append(content);
    return node;
  }

  /** Make `nodes` the children of `parent`. The focused one is not moved, because it would lose the caret. */
  function arrange(parent, nodes) {
    const expected = new Set(nodes);
    for (const node of [...parent.children]) if (!expected.has(node)) node.remove();
    let next = parent.firstChild;
    for (const node of expected) {
      while (next !== node && node.contains(document.activeElement)) {
        const after = next.nextSibling;
        parent.append(next);
        next = after;
      }
      if (next === node) next = next.nextSibling;
      else parent.insertBefore(node, next);
    }
  }

  let root = null;
  function drawState() {
    const state = gsvCanvas.getState();
    const hasActions = document.getElementById("actions").childElementCount > 0;
    const hasContent = Object.keys(state).length > 0 || hasActions;
    document.getElementById("nothing").hidden = hasContent;
    isRedrawDue = false;
    const node = nodeFor(root, state, [], 0);
    if (node !== root) document.getElementById("state").replaceChildren(node);
    root = node;
    if (movedCaret) moveCaret(movedCaret);
    movedCaret = null;
  }
  gsvCanvas.subscribe(drawState);

  const drawIfDue = () => { if (isRedrawDue) drawState(); };
  document.addEventListener("focusout", () => setTimeout(drawIfDue, BLUR_MS));
  document.addEventListener("compositionstart", () => { isComposing = true; });
  document.addEventListener("compositionend", () => { isComposing = false; });

  // The SDK marks a field with these attributes while its entry is unsaved or incomplete.
  new MutationObserver((changes) => {
    for (const { target, attributeName } of changes) {
      if (attributeName !== "data-gsv-half") continue;
      const isIncomplete = target.hasAttribute("data-gsv-half");
      if (isIncomplete) target.setAttribute("aria-invalid", "true");
      else target.removeAttribute("aria-invalid");
      const problem = target.parentElement?.nextElementSibling;
      if (problem?.matches(".wrong")) {
        problem.textContent = isIncomplete ? "This must be a number; it is not saved." : "";
      }
    }
    drawIfDue();
  }).observe(document.getElementById("state"), {
    subtree: true, attributeFilter: ["data-gsv-unsaved", "data-gsv-half"],
  });

  // --- the status of the actions

  const OUTPUT_LINES = 12;
  const TERMINAL_CODES = /\u001b\[[0-9;?]*[A-Za-z]|\u001b\][^\u0007]*\u0007/g;
  const afterCarriageReturn = (line) => line.slice(line.trimEnd().lastIndexOf("\r") + 1);
  const lastLines = (output) => {
    const lines = output.replace(TERMINAL_CODES, "").split("\n").map(afterCarriageReturn);
    return lines.slice(-OUTPUT_LINES - 1).join("\n");
  };

  /** Show the output and the stop button of a running action. The output of a failed one stays. */
  function showRunning(actionId, { status, eventId, output }) {
    const stop = document.querySelector(`[data-stop="${CSS.escape(actionId)}"]`);
    stop.hidden = status !== "running";
    stop.onclick = () => {
      stop.disabled = true;
      const enable = () => { stop.disabled = false; };
      gsvCanvas.cancelAction(eventId).catch(() => {}).finally(enable); // it may just have ended
    };
    const outputNode = document.querySelector(`[data-output="${CSS.escape(actionId)}"]`);
    outputNode.hidden = !output || status === "completed";
    outputNode.textContent = outputNode.hidden ? "" : lastLines(output);
  }

  /** Return the notes on the result of this execution, if the state contains that result already. */
  function savedNotes(actionId, endedAt) {
    if (!Object.hasOwn(saves, actionId)) return [];
    const member = (value, part) => (isObject(value) && Object.hasOwn(value, part) ? value[part] : null);
    const saved = saves[actionId].reduce(member, gsvCanvas.getState());
    const last = Array.isArray(saved) ? saved.at(-1) : saved;
    return isResult(last) && last.finishedAt === endedAt ? resultNotes(last.result) : [];
  }

  let statuses = {};
  function showOutcomes() {
    for (const node of document.querySelectorAll("[data-outcome]")) {
      const actionId = node.dataset.outcome;
      const execution = Object.hasOwn(statuses, actionId) ? statuses[actionId] : {};
      const { status, error, errorName, at } = execution;
      const notes = status === "completed" ? savedNotes(actionId, at) : [];
      const isStopped = status === "failed" && errorName === "CANCELLED";
      const outcome = {
        running: "running…",
        completed: ["done", ...notes].join(", "),
        failed: isStopped ? "stopped" : `failed: ${error ?? ""}`,
        refused: "refused",
        asked: "waits for consent",
      }[status] ?? "";
      node.className = `outcome ${isStopped ? "stopped" : notes.length ? "failed" : status ?? ""}`;
      node.title = isStopped ? error ?? "" : "";
      // An unchanged text is not announced again.
      if (node.textContent !== outcome) node.textContent = outcome;
      showRunning(actionId, execution);
    }
  }
  gsvCanvas.subscribe(showOutcomes);
  document.addEventListener("gsv:status", ({ detail }) => {
    statuses = detail;
    showOutcomes();
  });
})();
