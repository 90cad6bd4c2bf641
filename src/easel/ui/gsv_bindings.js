// `data-gsv-text`, `data-gsv-action`, `data-gsv-control`: elements that show a value of the state or run an
// action.
//
// Values are inserted as text, so nothing in a state becomes HTML. All bindings are evaluated again whenever
// the state or the page changes, so elements that a script adds later are bound too.

const BOUND = "[data-gsv-text], [data-gsv-model], [data-gsv-action], [data-gsv-control]";
const HOOKS = ["data-gsv-text", "data-gsv-model", "data-gsv-action", "data-gsv-control"];
const INPUT = "data-gsv-input-";
const NATIVE = "button, a[href], input, select, textarea, form, summary, label, option";
const MAX_LISTED_NAMES = 12;

const busy = new WeakSet(); // elements whose action runs: a second click does not start a second run
let isRenderScheduled = false;
let lastBroken = "[]";

const observer = new MutationObserver(() => {
  if (isRenderScheduled) return;
  isRenderScheduled = true;
  queueMicrotask(render);
});
observer.observe(document, { childList: true, subtree: true, attributeFilter: HOOKS });

function render() {
  isRenderScheduled = false;
  for (const element of document.querySelectorAll(BOUND)) {
    if (element.dataset.gsvText !== undefined) showText(element);
    if (element.dataset.gsvModel !== undefined) showModel(element);
    const actionId = actionOf(element);
    if (actionId !== null) showAction(element, actionId);
  }
  observer.takeRecords(); // ignore our own changes
  if (known.info) reportBroken();
}
afterState = render;

function showText(element) {
  const parts = parsePath(element.dataset.gsvText);
  if (!parts) return;
  const text = asText(resolvePath(known.state, parts));
  if (element.textContent !== text) element.textContent = text;
}

// --- actions -----------------------------------------------------------------------------------------------

/** Return the id of the action that an element runs; null for none, and for a control without a binding. */
function actionOf(element) {
  if (element.dataset.gsvAction !== undefined) return element.dataset.gsvAction;
  const control = element.dataset.gsvControl;
  const bindings = known.info?.bindings ?? {};
  return control !== undefined && Object.hasOwn(bindings, control) ? bindings[control] : null;
}

function showAction(element, actionId) {
  const status = Object.hasOwn(known.statuses, actionId) ? known.statuses[actionId] : null;
  const isBusy = busy.has(element) || status?.status === "running";
  if (isBusy) element.setAttribute("aria-busy", "true");
  else element.removeAttribute("aria-busy");
  if (status && element.dataset.gsvStatus !== status.status) element.dataset.gsvStatus = status.status;
  if (!element.matches(NATIVE) && !element.hasAttribute("tabindex")) {
    element.tabIndex = 0;
    if (!element.hasAttribute("role")) element.setAttribute("role", "button");
  }
}

/** Return the entry of a field with `data-input-type` as that type, and any other as text. */
function typedEntry(form, name, text) {
  const type = form.querySelector(`[name="${CSS.escape(name)}"]`)?.dataset.inputType;
  if (type === "boolean") return text === "true";
  if (type === "number" || type === "integer") return text.trim() === "" ? null : Number(text);
  if (type !== "json") return text;
  try {
    return JSON.parse(text);
  } catch {
    return text; // the tool's schema decides
  }
}

/**
 * Return the input of an action: the fields of the surrounding form, then `data-gsv-input-*` of the element.
 */
function inputOf(element, submitter) {
  const input = {};
  const put = (name, value) => { if (!UNSAFE.test(name)) input[name] = value; };
  const form = element.matches("form") ? element : element.form ?? element.closest("form");
  if (form) {
    const data = new FormData(form);
    for (const name of new Set(data.keys())) {
      const values = data.getAll(name).filter((value) => typeof value === "string");
      if (values.length) put(name, values.length > 1 ? values : typedEntry(form, name, values[0]));
    }
  }
  if (submitter?.name) put(submitter.name, submitter.value);
  if (!form && element.matches("input, select, textarea")) {
    put(element.name || "value", entryOf(element, null));
  }
  for (const { name, value } of element.attributes) {
    if (name.startsWith(INPUT)) put(name.slice(INPUT.length), value);
  }
  return input;
}

async function runElement(element, submitter) {
  const actionId = actionOf(element);
  if (actionId === null || busy.has(element)) return;
  busy.add(element);
  render();
  try {
    await runAction(actionId, inputOf(element, submitter));
  } catch (problem) {
    if (!(problem instanceof RequestRefused)) throw problem; // the shell shows a refusal
  } finally {
    busy.delete(element);
    render();
  }
}

/** Save all entries, then run the action: it runs on the values that the person sees. */
async function runAction(actionId, input = {}) {
  const params = { actionId: String(actionId), input };
  try {
    await allSaved();
  } catch (problem) {
    // Send the request anyway: the shell refuses it and shows the reason.
    if (problem.name === "UNAVAILABLE") return request("action", { ...params, isUnsaved: true });
    reportProblem(`action ${actionId}`, `It was not run: ${problem.message}`);
    throw problem;
  }
  return request("action", params);
}

const TRIGGER = "[data-gsv-action], [data-gsv-control]";
const NOT_CLICKED = "select, textarea, input:not([type=button], [type=submit], [type=reset], [type=image])";
const triggerOf = (event) => (event.target instanceof Element ? event.target.closest(TRIGGER) : null);
const runsOnChange = (element) => element.matches(NOT_CLICKED);

document.addEventListener("click", (event) => {
  const element = triggerOf(event);
  if (element && !element.matches("form") && !runsOnChange(element)) {
    event.preventDefault(); // a button in a form, or a link, only runs its action
    runElement(element, null);
    return;
  }
  const link = event.target instanceof Element ? event.target.closest("a[href], area[href]") : null;
  if (link && !isInside(link.href)) {
    event.preventDefault();
    reportProblem(`link to ${link.href.slice(0, 200)}`, "A canvas cannot open links to other sites.");
  }
});
document.addEventListener("keydown", (event) => {
  const element = triggerOf(event);
  if (!element || event.target !== element || element.matches(NATIVE) || event.repeat) return;
  if (!["Enter", " "].includes(event.key)) return;
  event.preventDefault();
  runElement(element, null);
});
document.addEventListener("change", (event) => {
  const element = triggerOf(event);
  if (element && runsOnChange(element)) runElement(element, null);
});
document.addEventListener("submit", (event) => {
  event.preventDefault(); // a form is never sent
  if (event.target instanceof Element && event.target.matches(TRIGGER)) {
    runElement(event.target, event.submitter);
  }
});

const FOLDER = location.href.slice(0, location.href.indexOf("/assets/") + "/assets/".length);
const isInside = (href) => href.startsWith(FOLDER) || href.startsWith("javascript:");

// --- broken bindings ---------------------------------------------------------------------------------------

function reportBroken() {
  const broken = [];
  for (const element of document.querySelectorAll(BOUND)) {
    for (const hook of HOOKS) {
      const value = element.getAttribute(hook);
      const message = value === null ? null : problemOf(element, hook, value);
      if (message) broken.push({ place: `<${element.localName} ${hook}="${value.slice(0, 120)}">`, message });
      if (broken.length >= MAX_PROBLEMS) break;
    }
  }
  const text = JSON.stringify(broken);
  if (text === lastBroken) return;
  lastBroken = text;
  send("broken", { broken });
}

/** Return the problem of one binding, or null. */
function problemOf(element, hook, value) {
  const { actions, bindings, writable, saves } = known.info;
  if (hook === "data-gsv-action") {
    if (actions.includes(value)) return null;
    return `There is no action “${value}”. ${listNames("The spec has", actions)}`;
  }
  if (hook === "data-gsv-control") {
    if (Object.hasOwn(bindings, value)) return null;
    return `There is no binding “${value}”. ${listNames("The spec binds", Object.keys(bindings))}`;
  }
  const parts = parsePath(value);
  if (!parts) return "A path must begin with “state.” and continue with names between single dots.";
  if (hook === "data-gsv-model") {
    if (!isField(element)) {
      return "Only input, select and textarea can be bound to the state; to show a value, use data-gsv-text.";
    }
    if (!parts.length || !writable.some((path) => startsWith(parts, path))) {
      return "A page must not write here: neither the spec's state nor “writable” names it.";
    }
  }
  if (isExpected(parts, saves)) return null;
  return `The state has no “${parts.join(".")}”, and no action saves there.`;
}

/** Return whether a path exists, is still empty, or is where an action saves its result. */
function isExpected(parts, saves) {
  if (saves.some((path) => startsWith(parts, path) || startsWith(path, parts))) return true;
  for (let depth = 1; depth <= parts.length; depth += 1) {
    const value = resolvePath(known.state, parts.slice(0, depth));
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
