// @ts-check
// The shell: the page around a canvas. Only the shell has the sign-in and the connection to the gateway, and
// only the shell asks the user for decisions. The canvas's page is in a frame of the shell.

import { AcceptPanel } from "./canvas_accept.js";
import { announce } from "./canvas_announce.js";
import { Bridge } from "./canvas_bridge.js";
import { Confirmations, describeTrigger } from "./canvas_confirmations.js";
import { Frame } from "./canvas_frame.js";
import { Gateway } from "./canvas_gateway.js";
import { isWithheld, probeIsolation, showIsolation } from "./canvas_isolation.js";
import { Notes } from "./canvas_notes.js";
import { RefreshFailures } from "./canvas_refresh_failures.js";
import { Versions } from "./canvas_versions.js";
import { CanvasWatch } from "./canvas_watch.js";
import { RequestRefused, Unreachable } from "./errors.js";
import { button, byId, element, readPages, summarize } from "./values.js";

const { view, isolated: isolatedView, until, canvas: canvasId, agent: agentId } = document.body.dataset;
const MAX_CONCURRENT_REQUESTS = 16; // of one page
const CANCELLED = "CANCELLED"; // the error of an execution that a person stopped
const LINK_TEXTS = {
  connecting: "connecting…",
  live: "connected",
  slow: "No answer from the server yet…",
  waiting: "The server cannot be reached. Reconnecting…",
  "signed-out": "You are signed out.",
  over: "no longer available",
};

let requestCount = 0;
let unsavedCount = 0;
let isIsolated = null; // whether this browser isolates a page; null until the probe has ended
const conflicts = new Map(); // by JSON pointer: the value that the user entered

const notes = new Notes();
const refreshFailures = new RefreshFailures();
const acceptPanel = new AcceptPanel(
  async (request) => watch.update(await gateway.call("canvas.accept", { canvasId, ...request })),
  () => watch.refresh(),
  () => readPages("tools", (page) => gateway.callWithRetry("tools.list", page)),
  async () => {
    const params = { canvasId, onlyAccepted: true, limit: 1 };
    const { current, versions: [last] } = await gateway.callWithRetry("canvas.versions", params);
    return current.accepted ? current : last;
  },
);
const versions = new Versions(
  (method, params) => gateway.callWithRetry(method, { canvasId, ...params }),
  async (version) => {
    const expectedRevision = watch.snapshot.revision;
    watch.update(await gateway.call("canvas.restore", { canvasId, version, expectedRevision }));
  },
);
const gateway = new Gateway(`canvas-${crypto.randomUUID()}`, {
  state: showLink,
  ready: () => watch.start(),
  event: (name, payload, seq) => watch.handleEvent(name, payload, seq),
});
const watch = new CanvasWatch(gateway, canvasId, agentId, { changed, over });
const confirmations = new Confirmations(gateway, watch, canvasId, {
  titleOf,
  note: (actionId, message) => notes.add(`action ${titleOf(actionId)}`, message),
  closed: restoreFocus,
  canvas: () => {
    const { descriptor, writtenBy, titledBy, accepted } = watch.snapshot;
    return { canvas: `${descriptor.title} (${canvasId})`, writtenBy, titledBy, isAccepted: accepted };
  },
});
const bridge = new Bridge({
  hello: () => {
    hideLeftPanel();
    bridge.send("welcome", pageMessage({ state: true, info: true }));
    bridge.send("link", { isLive: gateway.isLive });
  },
  action: (message) => answer(message, () => runAction(message)),
  cancel: (message) => answer(message, () => cancelFromPage(message)),
  input: (message) => answer(message, () => saveInput(message)),
  problem: ({ place, message }) => notes.add(String(place).slice(0, 300), String(message).slice(0, 1000)),
  broken: ({ broken }) => notes.setBrokenBindings(toNotes(broken)),
  idle: () => frame.handleIdle(),
  pong: hideLeftPanel,
  refused: reportRefusal,
});
const frame = new Frame(byId("stage"), pageAddress, bridge, { left: showLeftPanel });

// --- the canvas and its page -------------------------------------------------------------------------------

/** @param {{state?: any, spec?: any, assets?: any, isReset?: any, failed?: any}} changes */
function changed({ state, spec, assets, isReset, failed }) {
  const { descriptor, views, revision, accepted } = watch.snapshot;
  document.title = byId("title").textContent = descriptor.title;
  byId("revision").textContent = `revision ${revision}`;
  byId("views").textContent = views.length === 1 ? "1 viewer" : `${views.length} viewers`;
  showRunning();
  // A job that must not run before the canvas is accepted is listed in the accept panel and not as a failure.
  const isFailure = (job) => accepted !== false || job.errorName !== "FORBIDDEN";
  refreshFailures.show([...watch.failing.values()].filter(isFailure), titleOf);
  if (failed && failed.error?.name !== CANCELLED) {
    const reason = failed.error?.message ?? "no reason was given.";
    notes.add(`action ${titleOf(failed.actionId)}`, `It failed: ${reason}`);
  }
  acceptPanel.show(watch.snapshot);
  if (spec || assets || isReset) versions.update();
  confirmations.update();
  if (isIsolated !== null) showIsolation(watch.snapshot, isIsolated);
  if (!frame.exists) showPage();
  else if (assets || isReset || (spec && needsNewPage())) reloadPage();
  else bridge.send("state", pageMessage({ state, info: state || spec }));
  shownPageKey = pageKey();
}

/** Show the page; one that no person has accepted is shown after the probe. RS-63 */
function showPage() {
  const isKnown = watch.snapshot.accepted !== false || isIsolated !== null;
  if (isKnown) frame.show(pageMessage({ state: true, info: true }));
}

/**
 * Return the address of the page. Only the isolated view has the own page of a canvas that no person has
 * accepted; at the other address the server then sends the generated page.
 */
function pageAddress() {
  const isAccepted = watch.snapshot.accepted !== false;
  return `${isIsolated && !isAccepted ? isolatedView : view}assets/index.html`;
}

let shownPageKey = null;
/** Return the parts of a spec that its page is built from, as JSON: a change of them needs a new page. */
function pageKey() {
  const { spec, assets, accepted } = watch.snapshot;
  const isGenerated = !assets.includes("assets/index.html") || isWithheld(watch.snapshot, isIsolated);
  const parts = isGenerated ? [spec.actions, spec.state, spec.writable, spec.description] : null;
  return JSON.stringify([isGenerated, parts, accepted, spec.toolPolicy?.connect]);
}
const needsNewPage = () => shownPageKey !== pageKey();

function pageMessage({ state, info }) {
  const { snapshot, statuses, failing } = watch;
  const publicJob = ([refreshId, { actionId, failures, error, nextAt }]) => (
    [refreshId, { actionId, failures, error, nextAt }]
  );
  return {
    statuses,
    refreshes: Object.fromEntries([...failing].map(publicJob)),
    ...(state && { state: snapshot.state, revision: snapshot.revision }),
    ...(info && { info: infoOf(snapshot) }),
  };
}

/** Return the parts of a spec that a page needs to find broken bindings. */
function infoOf({ spec, descriptor }) {
  const actions = spec.actions ?? {};
  return {
    canvasId,
    title: descriptor.title,
    actions: Object.keys(actions),
    bindings: spec.bindings ?? {},
    writable: writablePaths(spec),
    saves: Object.values(actions).flatMap(({ saveAs }) => (saveAs ? [saveAs.split(".")] : [])),
  };
}

function writablePaths(spec) {
  return spec.writable?.map((path) => path.split(".")) ?? Object.keys(spec.state ?? {}).map((name) => [name]);
}

function reloadPage() {
  notes.clear();
  conflicts.clear();
  showConflicts();
  if (Date.now() / 1000 > Number(until) - 60) location.reload(); // the address of the view is about to expire
  else frame.reload(() => pageMessage({ state: true, info: true }));
}

// --- requests of the page ----------------------------------------------------------------------------------

async function answer({ id }, work) {
  if (typeof id !== "string" || id.length > 100) return;
  if (requestCount >= MAX_CONCURRENT_REQUESTS) {
    const message = "Too many requests at once; wait for the answers.";
    return bridge.refuse(id, { code: 429, name: "TOO_MANY", message });
  }
  requestCount += 1;
  try {
    bridge.answer(id, await work());
  } catch (problem) {
    if (!(problem instanceof Error)) throw problem;
    const unavailable = { code: 503, name: "UNAVAILABLE", message: problem.message };
    bridge.refuse(id, problem instanceof RequestRefused ? problem.toJSON() : unavailable);
  } finally {
    requestCount -= 1;
  }
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/**
 * Run an action. The gateway decides whether it exists and may run, and records a refusal. Without a
 * connection, or with an unsaved entry, the action fails at once: it must not run minutes after the click.
 */
async function runAction({ actionId, input, isUnsaved }) {
  const isActive = navigator.userActivation?.isActive; // from the browser: the page cannot forge it
  const name = String(actionId).slice(0, 200);
  const { startedRequests } = bridge; // of this page: a new page may be attached before the response arrives
  const requestId = crypto.randomUUID();
  startedRequests.add(requestId);
  let outcome = null;
  try {
    const values = isObject(input) ? input : {};
    const params = { canvasId, actionId: name, input: values, requestId, hasGesture: isActive === true };
    if (!gateway.isLive || isUnsaved) throw new Unreachable();
    const send = () => gateway.callWithRetry("canvas.action", params); // the request id makes it idempotent
    const first = await send();
    const reason = { why: describeTrigger(isActive), getStatus: send };
    const isPending = first.status === "needs_confirmation";
    outcome = isPending ? await confirmations.decide({ actionId: name, ...first }, reason) : first;
    // The page must get the new state before the outcome.
    if (outcome.revision) await watch.reach(outcome.revision).catch(() => {});
    if (outcome.status === "completed") announce(`${titleOf(name)}: done.`);
    return outcome;
  } catch (problem) {
    if (!problem.details?.eventId) { // otherwise an event reports the failure to every viewer
      const isRefused = problem instanceof RequestRefused;
      const message = isRefused ? problem.message : "There is no connection to the server; nothing was run.";
      notes.add(`action ${titleOf(name)}`, message);
    }
    throw problem;
  } finally {
    // An action that waits for confirmation may still run.
    if (outcome?.status !== "needs_confirmation") startedRequests.delete(requestId);
  }
}

/** Cancel a running execution of this canvas. Pending confirmations are decided in the dialog only. */
async function cancelAction({ eventId }) {
  return gateway.call("canvas.cancel", { canvasId, eventId, onlyRunning: true });
}

/**
 * Cancel an execution for the page: one that the page started or, on an accepted canvas, any other. RS-59
 */
async function cancelFromPage(message) {
  const eventId = String(message.eventId).slice(0, 200);
  const { startedRequests } = bridge;
  const { records } = await gateway.call("canvas.records", { canvasId, status: "running", limit: 200 });
  if (!records.some((record) => record.eventId === eventId && startedRequests.has(record.requestId))) {
    await watch.refresh(); // the acceptance may have changed
    if (!watch.snapshot.accepted) {
      bridge.drop("stop", eventId);
      throw new RequestRefused({
        code: 403,
        name: "FORBIDDEN",
        message: "Until a person accepts this canvas, its page can stop only actions that it started.",
      });
    }
  }
  return cancelAction({ eventId });
}

let shownRunning = "";
/**
 * Show a stop button for each running execution. The buttons are drawn only after a change: a button must not
 * move under the pointer.
 */
function showRunning() {
  const rows = watch.running.map((execution) => ({ ...execution, title: titleOf(execution.actionId) }));
  const content = JSON.stringify(rows);
  if (content === shownRunning) return;
  shownRunning = content;
  const countOf = ({ actionId }) => rows.filter((row) => row.actionId === actionId).length;
  const label = (row) => (countOf(row) > 1 ? `${row.title} (${countOf(row)} times)` : row.title);
  const labels = new Map(rows.map((row) => [row.actionId, label(row)]));
  byId("running").textContent = rows.length ? `running: ${[...labels.values()].join(", ")}` : "";
  byId("stops").replaceChildren(...rows.map((row) => {
    const since = countOf(row) > 1 ? `, since ${new Date(row.at).toLocaleTimeString()}` : "";
    const showProblem = (problem) => notes.add(`action ${row.title}`, problem.message);
    return button("plain", `Stop ${row.title}${since}`, () => cancelAction(row).catch(showProblem));
  }));
}

/** Save one value of the state. The gateway checks that the spec lets a page write it. RS-41 */
async function saveInput({ pointer, value, was, revision }) {
  const path = String(pointer);
  const name = `state${path.replaceAll("/", ".")}`;
  unsavedCount += 1;
  try {
    const params = { canvasId, path, value: value ?? null, was: was ?? null };
    if (Number.isInteger(revision)) params.expectedRevision = revision; // in a list: its items may move
    const snapshot = await gateway.callWithRetry("canvas.input", params);
    watch.update(snapshot);
    return { revision: snapshot.revision };
  } catch (problem) {
    if (problem.name === "INPUT_CONFLICT") {
      conflicts.set(path, value);
      announce(`${name} was changed by another user while you changed it.`);
      await watch.refresh();
      showConflicts();
    } else if (problem.name === "REVISION_CONFLICT") {
      await watch.refresh(); // the page gets the new state before the answer, and sends the entry again
    } else notes.add(name, `It could not be saved: ${problem.message}`);
    throw problem;
  } finally {
    unsavedCount -= 1;
  }
}

function reportRefusal(reason, detail, count) {
  const text = {
    source: "A message came from another window than this page.",
    nonce: "A message did not have the nonce of this page.",
    size: "A message was too large, or not plain data.",
    rate: "The page sends more messages than it may.",
    kind: `The page requested something that no page may${detail ? `: ${detail}` : ""}.`,
    stop: "The page tried to stop an action that it did not start, and no person has accepted this canvas.",
  }[reason];
  notes.add("bridge", `${text} Refused ${count === 1 ? "once" : `${count} times`}.`);
  gateway.call("canvas.report", { canvasId, what: reason, detail, count }).catch(() => {}); // best effort
}

const LEFT = "It left the canvas, or could not be loaded; a canvas cannot show other pages.";
let leftPanel = null; // covers the frame

function showLeftPanel() {
  leftPanel?.remove();
  const showAgain = button("main", "Show the canvas again", () => {
    leftPanel = null; // the page has left the canvas: the note about it stays
    frame.show(pageMessage({ state: true, info: true }));
  });
  const text = "The page of this canvas went somewhere else, or could not be loaded.";
  leftPanel = element("div", "left", element("p", "", text), element("p", "", showAgain));
  byId("stage").append(leftPanel);
  notes.add("page", LEFT);
}

/** Remove the panel: the page was only slow to answer. */
function hideLeftPanel() {
  if (!leftPanel) return;
  leftPanel.remove();
  leftPanel = null;
  notes.remove("page", LEFT);
}

function toNotes(broken) {
  if (!Array.isArray(broken)) return [];
  const toNote = (item) => ({
    place: String(item?.place).slice(0, 300),
    message: String(item?.message).slice(0, 1000),
  });
  return broken.slice(0, 50).map(toNote);
}

function titleOf(actionId) {
  const actions = watch.snapshot?.spec.actions ?? {};
  return Object.hasOwn(actions, actionId) ? actions[actionId].title ?? actionId : actionId;
}

/**
 * Return the focus to where it was before the dialog: in the page of the canvas, or in the list of
 * confirmations.
 */
function restoreFocus(from) {
  const page = byId("stage").querySelector("iframe");
  setTimeout(() => { // after the list was drawn
    if (from === byId("waiting")) (from.querySelector("button") ?? page)?.focus();
    else if (from instanceof HTMLIFrameElement && page) {
      page.focus();
      bridge.send("focus"); // a frame behind a dialog is inert and loses its focus
    } else if (from?.isConnected) from.focus();
  });
}

// --- conflicting entries -----------------------------------------------------------------------------------

const isObjectOrArray = (value) => value !== null && typeof value === "object";

/** Return the value at a JSON pointer, or undefined. The SDK of pages has a copy in web/sdk/paths.ts. */
function valueAt(pointer) {
  let value = watch.snapshot.state;
  for (const part of pointer.split("/").slice(1)) {
    const name = part.replaceAll("~1", "/").replaceAll("~0", "~");
    const isMember = isObjectOrArray(value) && Object.hasOwn(value, name);
    value = isMember ? value[name] : undefined;
  }
  return value;
}

function showConflicts() {
  byId("conflicts").hidden = !conflicts.size;
  byId("conflicts").replaceChildren(...[...conflicts].map(([path, mine]) => {
    const resolve = (keep) => {
      conflicts.delete(path);
      showConflicts();
      bridge.send("resolve", { pointer: path, keep });
    };
    const theirs = summarize(valueAt(path) ?? "nothing", 200);
    return element(
      "p", "", element("code", "", `state${path.replaceAll("/", ".")}`),
      " was changed to ", element("span", "entry", theirs),
      " by another user while you entered ", element("span", "entry", summarize(mine, 200)), ". ",
      button("", "Keep mine", () => resolve("mine")), button("", "Take theirs", () => resolve("theirs")),
    );
  }));
}

// --- the connection ----------------------------------------------------------------------------------------

function showLink(is) {
  byId("link").textContent = LINK_TEXTS[is];
  byId("link").className = `link ${is === "signed-out" ? "waiting" : is}`;
  byId("try-now").hidden = is !== "waiting";
  byId("signed-out").hidden = is !== "signed-out";
  bridge.send("link", { isLive: gateway.isLive });
  if (is === "signed-out" && !unsavedCount) hideCanvas(); // unsaved entries stay visible for the user
  if (is === "live" && frame.hasFailed) frame.show(pageMessage({ state: true, info: true }));
}

/** Remove everything of the canvas from the page: the user may have signed out. */
function hideCanvas() {
  frame.remove();
  watch.confirmations.clear();
  confirmations.update();
  document.body.classList.add("bare");
  const home = element("a", "", "All canvases");
  home.href = "/";
  byId("stage").append(element("div", "left", element("p", "", home)));
}

function over(reason) {
  gateway.end("over");
  hideCanvas();
  byId("over").hidden = false;
  byId("over").textContent = reason;
}

byId("sign-in").href = location.pathname;
byId("try-now").onclick = () => gateway.retryNow();
addEventListener("beforeunload", (event) => { if (unsavedCount) event.preventDefault(); });
// The browser restored the page from its cache: the user may have signed out.
addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
gateway.open();
probeIsolation(view).then((result) => {
  isIsolated = result;
  if (watch.snapshot) changed({ spec: true }); // else the first snapshot shows the page
});
