// `data-gsv-text`, `data-gsv-action`, `data-gsv-control`: what a page shows of the state, and what it runs.
//
// Text goes in as text, so nothing in a state becomes HTML. Everything is looked for anew whenever the state or the page changes: a page
// that builds itself later is bound like one that came whole.

const BOUND = "[data-gsv-text], [data-gsv-model], [data-gsv-action], [data-gsv-control]";
const HOOKS = ["data-gsv-text", "data-gsv-model", "data-gsv-action", "data-gsv-control"];
const INPUT = "data-gsv-input-";
const NATIVE = "button, a[href], input, select, textarea, form, summary, label, option";

const busy = new WeakSet(); // elements whose action runs: a second press is not a second run
let isDue = false;
let lastBroken = "[]";

const observer = new MutationObserver(() => {
  if (isDue) return;
  isDue = true;
  queueMicrotask(render);
});
observer.observe(document, { childList: true, subtree: true, attributeFilter: HOOKS });

function render() {
  isDue = false;
  for (const element of document.querySelectorAll(BOUND)) {
    if (element.dataset.gsvText !== undefined) showText(element);
    if (element.dataset.gsvModel !== undefined) showModel(element);
    const actionId = actionOf(element);
    if (actionId !== null) showAction(element, actionId);
  }
  observer.takeRecords(); // our own doing
  if (known.info) tellBroken();
}
afterState = render;

function showText(element) {
  const parts = parsed(element.dataset.gsvText);
  if (!parts) return;
  const text = asText(found(known.state, parts));
  if (element.textContent !== text) element.textContent = text;
}

// --- actions ----------------------------------------------------------------------------------------------------------

/** The id of the action that an element runs; null for none, which is also what a control without a binding runs. */
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

/** What goes with an action: the fields of the form around it, then `data-gsv-input-*` of the element itself. */
function inputOf(element, submitter) {
  const input = {};
  const put = (name, value) => { if (!UNSAFE.test(name)) input[name] = value; };
  const form = element.matches("form") ? element : element.form ?? element.closest("form");
  if (form) {
    const data = new FormData(form);
    for (const name of new Set(data.keys())) {
      const values = data.getAll(name).filter((value) => typeof value === "string");
      if (values.length) put(name, values.length > 1 ? values : values[0]);
    }
  }
  if (submitter?.name) put(submitter.name, submitter.value);
  if (!form && element.matches("input, select, textarea")) put(element.name || "value", entryOf(element, null));
  for (const { name, value } of element.attributes) if (name.startsWith(INPUT)) put(name.slice(INPUT.length), value);
  return input;
}

async function run(element, submitter) {
  const actionId = actionOf(element);
  if (actionId === null || busy.has(element)) return;
  busy.add(element);
  render();
  try {
    await runAction(actionId, inputOf(element, submitter));
  } catch (problem) {
    if (!(problem instanceof Refused)) throw problem; // what the host refused is shown by the shell
  } finally {
    busy.delete(element);
    render();
  }
}

/** First what was typed, then the action: it runs on what the person sees. */
async function runAction(actionId, input = {}) {
  try {
    await settled();
  } catch (problem) {
    if (problem.name === "UNAVAILABLE") return ask("action", { actionId: String(actionId), input, isUnsaved: true }); // the shell refuses it, and says why
    complain(`action ${actionId}`, `It was not run, for ${problem.message}`);
    throw problem;
  }
  return ask("action", { actionId: String(actionId), input });
}

const triggerOf = (event) => (event.target instanceof Element ? event.target.closest("[data-gsv-action], [data-gsv-control]") : null);
const isChosen = (element) => element.matches("select, textarea, input:not([type=button], [type=submit], [type=reset], [type=image])");

document.addEventListener("click", (event) => {
  const element = triggerOf(event);
  if (element && !element.matches("form") && !isChosen(element)) {
    event.preventDefault(); // a button in a form, or a link: it runs its action and nothing else
    run(element, null);
    return;
  }
  const link = event.target instanceof Element ? event.target.closest("a[href], area[href]") : null;
  if (link && !isInside(link.href)) {
    event.preventDefault();
    complain(`link to ${link.href.slice(0, 200)}`, "A canvas does not lead out: links to other places are not followed.");
  }
});
document.addEventListener("keydown", (event) => {
  const element = triggerOf(event);
  if (!element || event.target !== element || element.matches(NATIVE) || !["Enter", " "].includes(event.key) || event.repeat) return;
  event.preventDefault();
  run(element, null);
});
document.addEventListener("change", (event) => {
  const element = triggerOf(event);
  if (element && isChosen(element)) run(element, null);
});
document.addEventListener("submit", (event) => {
  event.preventDefault(); // nothing is ever sent from here
  if (event.target instanceof Element && event.target.matches("[data-gsv-action], [data-gsv-control]")) run(event.target, event.submitter);
});

const FOLDER = location.href.slice(0, location.href.indexOf("/assets/") + "/assets/".length);
const isInside = (href) => href.startsWith(FOLDER) || href.startsWith("javascript:");

// --- what is bound to nothing -----------------------------------------------------------------------------------------

function tellBroken() {
  const broken = [];
  for (const element of document.querySelectorAll(BOUND)) {
    for (const hook of HOOKS) {
      const value = element.getAttribute(hook);
      const says = value === null ? null : whatIsWrong(element, hook, value);
      if (says) broken.push({ at: `<${element.localName} ${hook}="${value.slice(0, 120)}">`, says });
      if (broken.length >= MOST_PROBLEMS) break;
    }
  }
  const text = JSON.stringify(broken);
  if (text === lastBroken) return;
  lastBroken = text;
  say("broken", { broken });
}

function whatIsWrong(element, hook, value) {
  const { actions, bindings, writable, saves } = known.info;
  if (hook === "data-gsv-action") return actions.includes(value) ? null : `There is no action “${value}”. ${listed("The spec has", actions)}`;
  if (hook === "data-gsv-control") return Object.hasOwn(bindings, value) ? null : `No binding is called “${value}”. ${listed("The spec binds", Object.keys(bindings))}`;
  const parts = parsed(value);
  if (!parts) return "This is no path: it begins with “state.” and goes on with names between single dots.";
  if (hook === "data-gsv-model") {
    if (!isField(element)) return "Only input, select and textarea can be tied to the state; to show it, use data-gsv-text.";
    if (!parts.length || !writable.some((place) => begins(parts, place))) return "A page may not write here: neither the spec's state nor “writable” names it.";
  }
  return isExpected(parts, saves) ? null : `The state has no “${parts.join(".")}”, and no action saves there.`;
}

/** Whether a place exists, is empty so far, or is where an action's result comes to stand. */
function isExpected(parts, saves) {
  if (saves.some((place) => begins(parts, place) || begins(place, parts))) return true;
  for (let depth = 1; depth <= parts.length; depth += 1) {
    const value = found(known.state, parts.slice(0, depth));
    if (value === MISSING) return false;
    if (value === null) return true;
  }
  return true;
}

const listed = (says, names) => (names.length ? `${says} ${names.slice(0, 12).join(", ")}${names.length > 12 ? ", …" : ""}.` : `${says} none.`);
