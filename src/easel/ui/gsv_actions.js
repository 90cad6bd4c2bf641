// `data-gsv-action`, `data-gsv-control`: elements that run an action, and the input that they send.

const NATIVE = "button, a[href], input, select, textarea, form, summary, label, option";

const { get: elementsOf } = Object.getOwnPropertyDescriptor(HTMLFormElement.prototype, "elements");
const busy = new WeakSet(); // elements whose action runs: a second click does not start a second run

/** Return the id of the action that an element runs; null for none, and for a control without a binding. */
function actionOf(element) {
  const action = getAttribute.call(element, `${PREFIX}action`);
  if (action !== null) return action;
  const control = getAttribute.call(element, `${PREFIX}control`);
  const bindings = known.info?.bindings ?? {};
  return control !== null && Object.hasOwn(bindings, control) ? bindings[control] : null;
}

/** Show the status of an element's action. In a list an element shows only the action that it started. */
function showAction(element, scope) {
  const actionId = actionOf(element);
  if (actionId === null) return;
  const isShared = scope === page && Object.hasOwn(known.statuses, actionId);
  const status = isShared ? known.statuses[actionId] : null;
  const isBusy = busy.has(element) || status?.status === "running";
  if (isBusy !== (element.getAttribute("aria-busy") === "true")) {
    if (isBusy) element.setAttribute("aria-busy", "true");
    else element.removeAttribute("aria-busy");
  }
  if (status && element.getAttribute(`${PREFIX}status`) !== status.status) {
    element.setAttribute(`${PREFIX}status`, status.status);
  }
  if (!matches(element, NATIVE) && !element.hasAttribute("tabindex")) {
    element.tabIndex = 0;
    if (!element.hasAttribute("role")) element.setAttribute("role", "button");
  }
}

/** Return the entry of a field as its `data-input-type`, or as its own type says, and any other as text. */
function typedEntry(field, text) {
  const type = field?.dataset.inputType;
  if (!type && field && matches(field, NUMBER_FIELD)) return text === "" ? MISSING : Number(text);
  if (type === "boolean") return text === "true";
  if (type === "number" || type === "integer") return text.trim() === "" ? null : Number(text);
  if (type !== "json") return text;
  try {
    return JSON.parse(text);
  } catch {
    return text; // the tool's schema decides
  }
}

const NUMBER_FIELD = "input[type=number], input[type=range]";
// A box with a `value` of its own sends that text, as several boxes of one name do.
const SWITCH = "input[type=checkbox][name]:not([value], :disabled)";

/**
 * Return the input of an action: the fields of the surrounding form, then of the element the texts
 * `data-gsv-input-NAME` and the values at the paths `data-gsv-value-NAME`.
 */
function inputOf(element, submitter) {
  const input = {};
  const put = (name, value) => { if (value !== MISSING && !UNSAFE.test(name)) input[name] = value; };
  const form = matches(element, "form") ? element : element.form ?? closest(element, "form");
  if (form) {
    const data = new FormData(form);
    const fields = [...elementsOf.call(form)];
    const named = (name) => fields.filter((field) => field.name === name);
    for (const name of new Set(data.keys())) {
      const values = data.getAll(name).filter((value) => typeof value === "string");
      if (values.length) put(name, values.length > 1 ? values : typedEntry(named(name)[0], values[0]));
    }
    for (const box of fields.filter((field) => matches(field, SWITCH))) {
      if (named(box.name).length === 1) put(box.name, box.checked);
    }
  }
  if (submitter?.name) put(submitter.name, submitter.value);
  if (!form && matches(element, "input, select, textarea")) {
    put(element.name || "value", entryOf(element, null));
  }
  const scope = scopeOf(element);
  for (const { kind, name, value, path } of hooksOf(element)) {
    if (kind === "input") put(name, value);
    if (kind === "value" && path) put(name, valueAt(scope, path));
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
const triggerOf = (event) => (event.target instanceof Element ? closest(event.target, TRIGGER) : null);
const runsOnChange = (element) => matches(element, NOT_CLICKED);

document.addEventListener("click", (event) => {
  const element = triggerOf(event);
  if (element && !matches(element, "form") && !runsOnChange(element)) {
    event.preventDefault(); // a button in a form, or a link, only runs its action
    runElement(element, null);
    return;
  }
  const link = event.target instanceof Element ? closest(event.target, "a, area") : null;
  const address = link && addressOf(link);
  if (link && !isInside(address)) {
    event.preventDefault();
    reportProblem(`link to ${address.slice(0, 200)}`, "A canvas cannot open links to other sites.");
  }
});
document.addEventListener("keydown", (event) => {
  const element = triggerOf(event);
  if (!element || event.target !== element || matches(element, NATIVE) || event.repeat) return;
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
  if (event.target instanceof Element && matches(event.target, TRIGGER)) {
    runElement(event.target, event.submitter);
  }
});

const FOLDER = location.href.slice(0, location.href.indexOf("/assets/") + "/assets/".length);

/** Return the absolute address of a link, in an SVG too. One that cannot be parsed is returned as it is. */
function addressOf(link) {
  const address = link.href?.baseVal ?? link.href ?? "";
  return URL.canParse(address, document.baseURI) ? new URL(address, document.baseURI).href : address;
}

const isInside = (href) => href.startsWith(FOLDER) || href.startsWith("javascript:");
