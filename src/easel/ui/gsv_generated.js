"use strict";
// Draws a canvas's state: what can be written as fields, what actions have saved as results, lists of objects as tables. It knows no more
// than any page of a canvas, and uses the same hooks.
//
// What is drawn stays as long as its kind does: what others change appears around the field that somebody is at, and that field keeps its kind,
// its caret and what is typed until it is left and stored.
(() => {
  const { writable, results, saves, numbers } = JSON.parse(document.getElementById("places").textContent);
  const LONG = 80; // characters of text that deserve more than one line
  const MOST_ROWS = 200;
  const DEEPEST = 3; // beyond that it is shown as JSON
  const CALM_MS = 400; // after a field was left: a button that moves while it is being pressed is not pressed
  const FIELDS = ["check", "number", "long", "short"];
  const NUMBER = /^\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?\s*$/i;
  const PART = /^[\p{L}\p{N}_-]{1,128}$/u;

  const make = (tag, className, ...children) => {
    const made = document.createElement(tag);
    if (className) made.className = className;
    made.append(...children);
    return made;
  };
  const begins = (path, start) => start.every((part, place) => path[place] === part);
  const mayWrite = (path) => path.every((part) => PART.test(part)) && writable.some((place) => begins(path, place));
  const isResult = (path) => results.some((place) => place.length === path.length && begins(path, place));
  const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
  const isOutcome = (value) => isObject(value) && value.ok === true && "result" in value && "finishedAt" in value;
  const words = (name) => {
    const said = name.replace(/([a-z0-9])([A-Z])/g, "$1 $2").replace(/[._:-]+/g, " ").trim();
    return said ? said[0].toUpperCase() + said.slice(1).toLowerCase() : name;
  };
  const shownText = (value) => (value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value, null, 2) : String(value));

  const isLong = (value) => typeof value === "string" && (value.length > LONG || value.includes("\n"));

  const isDeclaredNumber = (path) => numbers.some((place) => place.length === path.length && begins(path, place));

  /** How a value is drawn. Where there is none, as what was there before it, or as what the spec has there: the next entry is of the same kind. */
  function kindOf(value, path, depth, before) {
    if (isResult(path) || isOutcome(value)) return "result";
    if (Array.isArray(value)) return "list";
    if (isObject(value)) return depth >= DEEPEST ? "json" : "members";
    if (!mayWrite(path)) return "text";
    if (typeof value === "boolean") return "check";
    if (typeof value === "number" || (isDeclaredNumber(path) && (value === null || NUMBER.test(value)))) return "number"; // also what has become text by mistake
    if (value === null && FIELDS.includes(before)) return before;
    return isLong(value) ? "long" : "short";
  }

  function field(path, kind) {
    const input = make(kind === "long" ? "textarea" : "input", "");
    if (kind === "check") input.type = "checkbox";
    if (kind === "number") Object.assign(input, { type: "number", step: "any", required: isDeclaredNumber(path) }); // where the spec has nothing, a person may leave nothing
    if (kind === "long" || kind === "short") input.dir = "auto"; // as it is written, from whichever side
    input.dataset.gsvModel = `state.${path.join(".")}`;
    const name = words(path.at(-1));
    if (kind === "check") return make("label", "check", input, name);
    const label = make("label", kind === "long" ? "long" : "", name, input);
    if (kind !== "number") return label;
    const wrong = make("span", "wrong");
    wrong.setAttribute("role", "status");
    return make("div", "", label, wrong);
  }

  function text(path, value) {
    const shown = make("div", "value");
    if (path.every((part) => PART.test(part))) shown.dataset.gsvText = `state.${path.join(".")}`;
    else shown.textContent = shownText(value);
    return make("div", "", make("span", "name", words(path.at(-1))), shown);
  }

  function table(rows) {
    const columns = [...new Set(rows.slice(0, MOST_ROWS).flatMap((row) => Object.keys(row)))];
    const head = make("tr", "", ...columns.map((name) => make("th", "", words(name))));
    const body = rows.slice(0, MOST_ROWS).map((row) => make("tr", "", ...columns.map((name) => make("td", "", Object.hasOwn(row, name) ? shownText(row[name]) : ""))));
    const made = make("div", "table", make("table", "", make("thead", "", head), make("tbody", "", ...body)));
    if (rows.length > MOST_ROWS) made.append(make("p", "faint", `The first ${MOST_ROWS} of ${rows.length}.`));
    return made;
  }

  function list(values) {
    if (!values.length) return make("p", "faint", "Nothing yet.");
    if (values.every(isOutcome)) return make("div", "", ...values.slice(-20).reverse().map((value) => result(value)));
    if (values.every(isObject)) return table(values);
    return make("ul", "", ...values.slice(0, MOST_ROWS).map((value) => make("li", "value", shownText(value))));
  }

  function result(value) {
    if (value === null || value === undefined) return make("p", "faint", "Not run yet.");
    if (!isOutcome(value)) return Array.isArray(value) ? list(value) : make("pre", "value", shownText(value));
    const when = new Date(value.finishedAt);
    const said = isObject(value.result) && typeof value.result.output === "string" ? value.result.output : shownText(value.result);
    const ended = Number.isNaN(when.getTime()) ? "" : `finished ${when.toLocaleString()}`;
    return make("div", "", make("pre", "value", said), make("p", "faint", ...remarks(value.result).flatMap((one) => [make("span", "bad", one), " · "]), ended));
  }

  /** What a command's output alone does not say: that it did not end well, or is not all. */
  function remarks(result) {
    if (!isObject(result) || !Object.hasOwn(result, "output")) return [];
    const { exit_code: code, stopped, reason, truncated } = result;
    const how = stopped ? [typeof reason === "string" ? reason : `stopped: ${shownText(stopped)}`] : typeof code === "number" && code !== 0 ? [`exit code ${code}`] : [];
    return truncated === true ? [...how, "the output was cut"] : how;
  }

  // --- the drawing, and how it follows the state: what is there stays, and above all a field that somebody is at

  const shown = new WeakMap(); // by node: {kind, update(value)}
  let isOverdue = false; // something has another kind by now, and waits until it is let go
  let isComposing = false;
  let carried = null; // the field that the caret goes on in, and the one that it was in
  const isUnsaved = (node) => node.querySelector("[data-gsv-unsaved], [data-gsv-half]") !== null;
  const isAt = (node) => document.activeElement.matches("[data-gsv-model]") && node.contains(document.activeElement);
  const isHeld = (node) => {
    const is = isAt(node) || isUnsaved(node);
    isOverdue ||= is;
    return is;
  };

  /** The node for a value: the one that was there, brought up to date, wherever that can show it. One that is held stays until it is let go. */
  function fitted(before, value, path, depth) {
    const known = before ? shown.get(before) : undefined;
    const kind = kindOf(value, path, depth, known?.kind);
    const isSame = known?.kind === kind || (known?.kind === "long" && kind === "short") || (known?.kind === "short" && kind === "long" && !value.includes("\n"));
    if (isSame) known.update(value);
    const isTight = known?.kind === "short" && kind === "long" && !isUnsaved(before) && !isComposing; // a line break came from elsewhere: one line has no room for it, and the next key would drop it
    if (isSame || (before && !isTight && isHeld(before))) return before;
    const made = drawn(kind, value, path, depth);
    made.update(value);
    shown.set(made.node, { kind, update: made.update });
    if (isTight && isAt(before)) carried = { to: made.node.querySelector("textarea"), from: document.activeElement };
    return made.node;
  }

  /** At once, so that no key is lost. What is new is put around the caret by the SDK. */
  function carry({ to, from: { value, selectionStart, selectionEnd, selectionDirection } }) {
    to.value = value;
    to.focus({ preventScroll: true });
    to.setSelectionRange(selectionStart, selectionEnd, selectionDirection);
  }

  function drawn(kind, value, path, depth) {
    if (kind === "members") return members(path, depth);
    if (FIELDS.includes(kind)) return { node: field(path, kind), update: () => {} }; // the SDK keeps it up to date
    if (kind === "text") {
      const node = text(path, value);
      return { node, update: (now) => { if (!node.querySelector("[data-gsv-text]")) node.lastChild.textContent = shownText(now); } }; // else the SDK does
    }
    const draw = { result, list, json: (one) => make("pre", "value", shownText(one)) }[kind];
    const node = make("div", "");
    let last;
    return { node, update: (now) => {
      const wanted = JSON.stringify(now) ?? "";
      if (wanted === last) return;
      last = wanted;
      if (node.firstChild) become(node.firstChild, draw(now));
      else node.append(draw(now));
    } };
  }

  /** As little as possible is made anew: what somebody reads, marks or scrolls in stays. */
  function become(old, wanted) {
    if (old.nodeName !== wanted.nodeName || old.className !== wanted.className) {
      old.replaceWith(wanted);
    } else if (old.nodeType === Node.TEXT_NODE) {
      if (old.data !== wanted.data) old.data = wanted.data;
    } else {
      const [was, now] = [[...old.childNodes], [...wanted.childNodes]];
      now.forEach((one, place) => (place < was.length ? become(was[place], one) : old.append(one)));
      for (const one of was.slice(now.length)) one.remove();
    }
  }

  /** The plain values of an object together, then its other members each under its name. */
  function members(path, depth) {
    const fields = make("div", depth ? "" : "part fields");
    const [node, plain, parts] = [make("div", "", fields), new Map(), new Map()]; // by name: its node; its section
    const isHeldIn = (map, name) => map.has(name) && isHeld(map.get(name));
    const isPlain = (value, name) => !isHeldIn(parts, name) && (isHeldIn(plain, name) || (!isResult([...path, name]) && (typeof value[name] !== "object" || value[name] === null)));
    const update = (value) => {
      const names = Object.keys(value);
      const those = new Set(names.filter((name) => isPlain(value, name)));
      const others = new Set(names.filter((name) => !those.has(name)));
      for (const [map, wanted] of [[plain, those], [parts, others]]) for (const [name, one] of map) if (!wanted.has(name) && !isHeld(one)) map.delete(name);
      for (const name of those) plain.set(name, fitted(plain.get(name), value[name], [...path, name], depth + 1));
      for (const name of others) parts.set(name, section(parts.get(name), name, value[name], [...path, name], depth + 1));
      fields.hidden = !plain.size;
      const inOrder = (map) => [...names, ...map.keys()].flatMap((name) => map.get(name) ?? []); // those that are gone and held still, last
      arrange(fields, inOrder(plain));
      arrange(node, [fields, ...inOrder(parts)]);
    };
    return { node, update };
  }

  function section(before, name, value, path, depth) {
    const made = before ?? make("section", "part", make("h2", "", words(name)));
    made.dataset.member = name;
    const [, inner] = made.children;
    const now = fitted(inner, value, path, depth);
    if (inner && inner !== now) inner.replaceWith(now);
    else if (!inner) made.append(now);
    return made;
  }

  /** These in this order, and nothing else. The others move around the one that somebody is at: a field that is moved loses the caret. */
  function arrange(place, nodes) {
    const wanted = new Set(nodes);
    for (const node of [...place.children]) if (!wanted.has(node)) node.remove();
    let next = place.firstChild;
    for (const node of wanted) {
      while (next !== node && node.contains(document.activeElement)) {
        const after = next.nextSibling;
        place.append(next);
        next = after;
      }
      if (next === node) next = next.nextSibling;
      else place.insertBefore(node, next);
    }
  }

  let root = null;
  function drawState() {
    const state = gsvCanvas.getState();
    document.getElementById("nothing").hidden = Object.keys(state).length > 0 || document.getElementById("actions").childElementCount > 0;
    isOverdue = false;
    const now = fitted(root, state, [], 0);
    if (now !== root) document.getElementById("state").replaceChildren(now);
    root = now;
    if (carried) carry(carried);
    carried = null;
  }
  gsvCanvas.subscribe(drawState);

  const drawOverdue = () => { if (isOverdue) drawState(); };
  document.addEventListener("focusout", () => setTimeout(drawOverdue, CALM_MS)); // what was held is let go
  document.addEventListener("compositionstart", () => { isComposing = true; });
  document.addEventListener("compositionend", () => { isComposing = false; });

  // How an entry stands is written at its field by the SDK.
  new MutationObserver((changes) => {
    for (const { target, attributeName } of changes) {
      if (attributeName !== "data-gsv-half") continue;
      const isHalf = target.hasAttribute("data-gsv-half");
      if (isHalf) target.setAttribute("aria-invalid", "true");
      else target.removeAttribute("aria-invalid");
      const wrong = target.parentElement?.nextElementSibling;
      if (wrong?.matches(".wrong")) wrong.textContent = isHalf ? "This is no number, and is not stored." : "";
    }
    drawOverdue();
  }).observe(document.getElementById("state"), { subtree: true, attributeFilter: ["data-gsv-unsaved", "data-gsv-half"] });

  // --- how the actions stand

  const LINES = 12; // of what a tool has said last
  const SIGNS = /\u001b\[[0-9;?]*[A-Za-z]|\u001b\][^\u0007]*\u0007/g; // colours and cursors of a terminal
  const lastLines = (text) => text.replace(SIGNS, "").split("\n").map((line) => line.slice(line.trimEnd().lastIndexOf("\r") + 1)).slice(-LINES - 1).join("\n");

  /** Beside its button, while it runs: what it says, and how to stop it. What a failed one said stays. */
  function showRunning(actionId, { status, eventId, output }) {
    const stop = document.querySelector(`[data-stop="${CSS.escape(actionId)}"]`);
    stop.hidden = status !== "running";
    stop.onclick = () => {
      stop.disabled = true;
      gsvCanvas.cancelAction(eventId).catch(() => {}).finally(() => { stop.disabled = false; }); // if it has just ended, that is shown
    };
    const said = document.querySelector(`[data-said="${CSS.escape(actionId)}"]`);
    said.hidden = !output || status === "completed";
    said.textContent = said.hidden ? "" : lastLines(output);
  }

  /** Of what this very execution has saved, if the state has it already. */
  function remarksOn(actionId, endedAt) {
    const saved = Object.hasOwn(saves, actionId) ? saves[actionId].reduce((here, part) => (isObject(here) && Object.hasOwn(here, part) ? here[part] : null), gsvCanvas.getState()) : null;
    const last = Array.isArray(saved) ? saved.at(-1) : saved;
    return isOutcome(last) && last.finishedAt === endedAt ? remarks(last.result) : [];
  }

  let statuses = {};
  function showOutcomes() {
    for (const place of document.querySelectorAll("[data-outcome]")) {
      const actionId = place.dataset.outcome;
      const one = Object.hasOwn(statuses, actionId) ? statuses[actionId] : {};
      const remarked = one.status === "completed" ? remarksOn(actionId, one.at) : [];
      const isStopped = one.status === "failed" && one.errorName === "CANCELLED";
      const says = { running: "running…", completed: ["done", ...remarked].join(", "), failed: isStopped ? "stopped" : `failed: ${one.error ?? ""}`, refused: "refused", asked: "waits for consent" }[one.status] ?? "";
      place.className = `outcome ${isStopped ? "stopped" : remarked.length ? "failed" : one.status ?? ""}`;
      place.title = isStopped ? one.error ?? "" : "";
      if (place.textContent !== says) place.textContent = says; // else it would be read out again
      showRunning(actionId, one);
    }
  }
  gsvCanvas.subscribe(showOutcomes);
  document.addEventListener("gsv:status", ({ detail }) => {
    statuses = detail;
    showOutcomes();
  });
})();
