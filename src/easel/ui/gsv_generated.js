"use strict";
// Draws a canvas's state: what can be written as fields, what actions have saved as results, lists of objects as tables. It knows no more
// than any page of a canvas, and uses the same hooks.
(() => {
  const { writable, results } = JSON.parse(document.getElementById("places").textContent);
  const LONG = 80; // characters of text that deserve more than one line
  const MOST_ROWS = 200;
  const DEEPEST = 3; // beyond that it is shown as JSON
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

  // A drawing is made anew only where its shape has changed: a field that somebody types in stays the same field.
  const shapeOf = (value, path, depth = 0) => {
    if (isResult(path) || isOutcome(value)) return "result";
    if (Array.isArray(value)) return `list:${JSON.stringify(value)}`;
    if (isObject(value)) return depth >= DEEPEST ? `json:${JSON.stringify(value)}` : `{${Object.keys(value).map((name) => `${JSON.stringify(name)}:${shapeOf(value[name], [...path, name], depth + 1)}`)}}`;
    if (!mayWrite(path)) return "text";
    return typeof value === "string" && (value.length > LONG || value.includes("\n")) ? "long" : value === null ? "string" : typeof value;
  };

  function field(path, value) {
    const input = make(typeof value === "string" && (value.length > LONG || value.includes("\n")) ? "textarea" : "input", "");
    if (typeof value === "boolean") input.type = "checkbox";
    if (typeof value === "number") Object.assign(input, { type: "number", step: "any" });
    input.dataset.gsvModel = `state.${path.join(".")}`;
    const name = words(path.at(-1));
    return typeof value === "boolean" ? make("label", "check", input, name) : make("label", "", name, input);
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
    return make("div", "", make("pre", "value", said), make("p", "faint", Number.isNaN(when.getTime()) ? "" : `finished ${when.toLocaleString()}`));
  }

  function draw(value, path, depth = 0) {
    if (isResult(path) || isOutcome(value)) return result(value);
    if (Array.isArray(value)) return list(value);
    if (!isObject(value)) return mayWrite(path) ? field(path, value) : text(path, value);
    if (depth >= DEEPEST) return make("pre", "value", shownText(value));
    return members(value, path, depth);
  }

  /** The plain values of an object together, then its other members each under its name. */
  function members(value, path, depth) {
    const made = make("div", "");
    const isPlain = (name) => !isResult([...path, name]) && (typeof value[name] !== "object" || value[name] === null);
    const plain = Object.keys(value).filter(isPlain);
    if (plain.length) made.append(make("div", depth ? "" : "part fields", ...plain.map((name) => draw(value[name], [...path, name], depth + 1))));
    for (const name of Object.keys(value).filter((one) => !isPlain(one))) {
      const part = make("section", "part", make("h2", "", words(name)), draw(value[name], [...path, name], depth + 1));
      part.dataset.member = name;
      made.append(part);
    }
    return made;
  }

  let lastShape = null;
  let lastResults = null;
  gsvCanvas.subscribe((state) => {
    document.getElementById("nothing").hidden = Object.keys(state).length > 0 || document.getElementById("actions").childElementCount > 0;
    const shape = shapeOf(state, []);
    const outcomes = JSON.stringify(results.map((path) => path.reduce((here, part) => (isObject(here) && Object.hasOwn(here, part) ? here[part] : undefined), state)));
    if (shape === lastShape && outcomes === lastResults) return;
    if (shape === lastShape) redrawResults(state);
    else document.getElementById("state").replaceChildren(draw(state, []));
    [lastShape, lastResults] = [shape, outcomes];
  });

  function redrawResults(state) {
    for (const path of results) {
      if (path.length > 1) {
        document.getElementById("state").replaceChildren(draw(state, []));
        return;
      }
      const part = document.querySelector(`[data-member="${CSS.escape(path[0])}"]`);
      part?.replaceChildren(make("h2", "", words(path[0])), result(state[path[0]]));
    }
  }

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

  document.addEventListener("gsv:status", ({ detail }) => {
    for (const place of document.querySelectorAll("[data-outcome]")) {
      const { status, error } = Object.hasOwn(detail, place.dataset.outcome) ? detail[place.dataset.outcome] : {};
      place.className = `outcome ${status ?? ""}`;
      showRunning(place.dataset.outcome, Object.hasOwn(detail, place.dataset.outcome) ? detail[place.dataset.outcome] : {});
      place.textContent = { running: "running…", completed: "done", failed: `failed: ${error ?? ""}`, refused: "refused", asked: "waits for consent" }[status] ?? "";
    }
  });
})();
