// The page around a canvas: it holds the sign-in, the connection and the last word; the canvas's own page, in its frame, holds none of them.

import { Accept } from "./canvas_accept.js";
import { Asking, whyAsked } from "./canvas_asking.js";
import { Bridge } from "./canvas_bridge.js";
import { FailingJobs } from "./canvas_failing.js";
import { Frame } from "./canvas_frame.js";
import { Away, Gateway, Refused } from "./canvas_gateway.js";
import { Notes } from "./canvas_notes.js";
import { speak } from "./canvas_spoken.js";
import { CanvasWatch } from "./canvas_watch.js";
import { at, button, element, glimpse } from "./values.js";

const { view, until, canvas: canvasId, agent: agentId } = document.body.dataset;
const MOST_AT_ONCE = 16; // questions of a page that are under way
const STOPPED = "CANCELLED"; // somebody wanted it to end: no problem of anybody's
const SAYS = {
  connecting: "connecting…",
  live: "connected",
  waiting: "The server cannot be reached. Reconnecting…",
  "signed-out": "You are signed out.",
  over: "not there any more",
};

let underWay = 0;
let unsaved = 0;
const conflicts = new Map(); // by pointer: what the person entered

const notes = new Notes();
const failingJobs = new FailingJobs();
const accept = new Accept(async (revision) => watch.take(await gateway.call("canvas.accept", { canvasId, revision })), () => watch.refresh());
const gateway = new Gateway(`canvas-${crypto.randomUUID()}`, {
  state: tellLink,
  ready: () => watch.begin(),
  event: (name, payload, seq) => watch.hear(name, payload, seq),
});
const watch = new CanvasWatch(gateway, canvasId, agentId, { changed, over });
const asking = new Asking(gateway, watch, canvasId, { titleOf, note: (actionId, says) => notes.add(`action ${titleOf(actionId)}`, says), closed: backTo });
const bridge = new Bridge({
  hello: () => {
    wasThere();
    bridge.say("welcome", told({ state: true, info: true }));
    bridge.say("link", { isLive: gateway.isLive });
  },
  action: (asked) => answered(asked, () => runAction(asked)),
  cancel: (asked) => answered(asked, () => cancelFromPage(asked)),
  input: (asked) => answered(asked, () => enter(asked)),
  problem: ({ at: where, says }) => notes.add(String(where).slice(0, 300), String(says).slice(0, 1000)),
  broken: ({ broken }) => notes.broken(listOf(broken)),
  idle: () => frame.isIdle(),
  here: wasThere,
  refused: pageRefused,
});
const frame = new Frame(at("stage"), `${view}assets/index.html`, bridge, { left: pageLeft });

// --- what is known, and who is told -----------------------------------------------------------------------------------

function changed(_, { state, spec, assets, isAnew, failed }) {
  const { descriptor, views, revision } = watch.whole;
  document.title = at("title").textContent = descriptor.title;
  at("revision").textContent = `revision ${revision}`;
  at("views").textContent = views.length === 1 ? "only you look at it" : `${views.length} look at it`;
  tellRunning();
  // What may not run before somebody accepts the canvas does not fail: the panel says what waits for that.
  failingJobs.tell([...watch.failing.values()].filter((one) => watch.whole.accepted !== false || one.errorName !== "FORBIDDEN"), titleOf);
  if (failed && failed.error?.name !== STOPPED) notes.add(`action ${titleOf(failed.actionId)}`, `It failed: ${failed.error?.message ?? "no reason was told."}`);
  accept.tell(watch.whole, spec || assets || isAnew);
  asking.tell();
  if (!frame.isThere) frame.show(told({ state: true, info: true }));
  else if (assets || isAnew || (spec && needsNewPage())) reload();
  else bridge.say("state", told({ state, info: state || spec }));
  pageSpec = pageNeeds();
}

let pageSpec = null;
/** What of a spec a page is made with: another one of it needs another page. */
function pageNeeds() {
  const { spec, assets, accepted } = watch.whole;
  const isGenerated = !assets.includes("assets/index.html");
  return JSON.stringify([isGenerated, isGenerated ? [spec.actions, spec.state, spec.writable, spec.description] : null, accepted, spec.toolPolicy?.connect]);
}
const needsNewPage = () => pageSpec !== pageNeeds();

function told({ state, info }) {
  const { whole, statuses, failing } = watch;
  return {
    statuses,
    refreshes: Object.fromEntries([...failing].map(([refreshId, { actionId, failures, error, nextAt }]) => [refreshId, { actionId, failures, error, nextAt }])),
    ...(state && { state: whole.state, revision: whole.revision }),
    ...(info && { info: infoOf(whole) }),
  };
}

/** What a page has to know of its spec to say what is bound to nothing. */
function infoOf({ spec, descriptor }) {
  const actions = spec.actions ?? {};
  return {
    canvasId,
    title: descriptor.title,
    actions: Object.keys(actions),
    bindings: spec.bindings ?? {},
    writable: writablePlaces(spec),
    saves: Object.values(actions).flatMap(({ saveAs }) => (saveAs ? [saveAs.split(".")] : [])),
  };
}

const writablePlaces = (spec) => spec.writable?.map((place) => place.split(".")) ?? Object.keys(spec.state ?? {}).map((name) => [name]);

function reload() {
  notes.clear();
  conflicts.clear();
  tellConflicts();
  if (Date.now() / 1000 > Number(until) - 60) location.reload(); // the address of the view is about to end
  else frame.showAnew(() => told({ state: true, info: true }));
}

// --- what a page asks for ---------------------------------------------------------------------------------------------

async function answered({ id }, work) {
  if (typeof id !== "string" || id.length > 100) return;
  if (underWay >= MOST_AT_ONCE) return bridge.refuse(id, { code: 429, name: "TOO_MANY", message: "Too much at once; wait for the answers." });
  underWay += 1;
  try {
    bridge.answer(id, await work());
  } catch (problem) {
    if (!(problem instanceof Error)) throw problem;
    bridge.refuse(id, problem.told ?? { code: 503, name: "UNAVAILABLE", message: problem.message });
  } finally {
    underWay -= 1;
  }
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/**
 * Whether there is such an action, and whether it may run, is for the gateway to say: it refuses, and keeps a record of it. Without a connection,
 * and while something that was entered has not reached the server for want of one, nothing is run: nobody waits for a press of minutes ago.
 */
async function runAction({ actionId, input, isUnsaved }) {
  const isTheirs = navigator.userActivation?.isActive; // whatever a page says, a browser knows whether somebody did something
  const name = String(actionId).slice(0, 200);
  const { pressed } = bridge; // of the page that asks: another one may have taken its place when the answer is there
  const requestId = crypto.randomUUID();
  pressed.add(requestId);
  let end = null;
  try {
    const params = { canvasId, actionId: name, input: isObject(input) ? input : {}, requestId };
    if (!gateway.isLive || isUnsaved) throw new Away();
    const ask = () => gateway.insist("canvas.action", params); // the same request is one press, however often it is sent
    const answer = await ask();
    end = answer.status === "needs_confirmation" ? await asking.decide({ actionId: name, ...answer }, { why: whyAsked(isTheirs), ask }) : answer;
    if (end.revision) await watch.reach(end.revision).catch(() => {}); // a page that hears of the end has the state of the end
    if (end.status === "completed") speak(`${titleOf(name)}: done.`);
    return end;
  } catch (problem) {
    if (!problem.details?.eventId) { // else an event tells of it, to everybody who looks
      notes.add(`action ${titleOf(name)}`, problem instanceof Refused ? problem.message : "There is no connection to the server; nothing was run.");
    }
    throw problem;
  } finally {
    if (end?.status !== "needs_confirmation") pressed.delete(requestId); // else it may run yet
  }
}

/** Of this canvas alone, and only what runs: what waits for a person is answered in the dialog, and nowhere else. The gateway sees to both. */
async function cancelAction({ eventId }) {
  return gateway.call("canvas.cancel", { canvasId, eventId, onlyRunning: true });
}

/**
 * A page stops what it started itself. Whatever else runs it stops only while a person stands for the canvas: else a page that an agent put
 * there would cut off what people have pressed and confirmed. RS-59
 */
async function cancelFromPage(asked) {
  const eventId = String(asked.eventId).slice(0, 200);
  const { pressed } = bridge;
  const { records } = await gateway.call("canvas.records", { canvasId, status: "running", limit: 200 });
  if (!records.some((one) => one.eventId === eventId && pressed.has(one.requestId))) {
    await watch.refresh(); // as it is now: the page may be newer than what was read
    if (!watch.whole.accepted) {
      bridge.drop("stop", eventId);
      throw new Refused({ code: 403, name: "FORBIDDEN", message: "Until a person accepts this canvas, its page stops only what it has started itself, and only while that runs." });
    }
  }
  return cancelAction({ eventId });
}

let shownRunning = "";
/** A line and a button for each execution. Drawn anew only when something else runs: a button that moves is not pressed. */
function tellRunning() {
  const rows = watch.running.map((one) => ({ ...one, title: titleOf(one.actionId) }));
  const now = JSON.stringify(rows);
  if (now === shownRunning) return;
  shownRunning = now;
  const timesOf = ({ actionId }) => rows.filter((one) => one.actionId === actionId).length;
  const named = new Map(rows.map((one) => [one.actionId, timesOf(one) > 1 ? `${one.title} (${timesOf(one)} times)` : one.title]));
  at("running").textContent = rows.length ? `running: ${[...named.values()].join(", ")}` : "";
  at("stops").replaceChildren(...rows.map((one) => {
    const since = timesOf(one) > 1 ? `, since ${new Date(one.at).toLocaleTimeString()}` : ""; // of two that are called the same
    return button("plain", `Stop ${one.title}${since}`, () => cancelAction(one).catch((problem) => notes.add(`action ${one.title}`, problem.message)));
  }));
}

/** One value at one place; the gateway holds it to what the spec lets a page write. RS-41 */
async function enter({ pointer, value, was }) {
  const path = String(pointer);
  const name = `state${path.replaceAll("/", ".")}`;
  unsaved += 1;
  try {
    const whole = await gateway.insist("canvas.input", { canvasId, path, value: value ?? null, was: was ?? null });
    watch.take(whole);
    return { revision: whole.revision };
  } catch (problem) {
    if (problem.name === "INPUT_CONFLICT") {
      conflicts.set(path, value);
      speak(`${name} was changed by somebody else while you changed it.`);
      await watch.refresh();
      tellConflicts();
    } else notes.add(name, `It could not be saved: ${problem.message}`);
    throw problem;
  } finally {
    unsaved -= 1;
  }
}

function pageRefused(what, detail, count) {
  const says = {
    source: "A message came from somewhere else than this page.",
    nonce: "A message did not belong to this page.",
    size: "A message was too large, or not plain data.",
    rate: "The page sends more messages than it may.",
    kind: `The page asked for something that no page may${detail ? `: ${detail}` : ""}.`,
    stop: "The page tried to stop what it has not started, and no person has accepted this canvas.",
  }[what];
  notes.add("bridge", `${says} Refused ${count === 1 ? "once" : `${count} times`}.`);
  gateway.call("canvas.report", { canvasId, what, detail, count }).catch(() => {}); // without a connection nothing could have been done with it
}

const LEFT = "It left its place, or could not be loaded; a canvas cannot show other pages.";
let leftPanel = null; // it lies over the frame

function pageLeft() {
  leftPanel?.remove();
  const again = button("main", "Show the canvas again", () => {
    leftPanel = null; // it did leave: that stays told
    frame.show(told({ state: true, info: true }));
  });
  leftPanel = element("div", "left", element("p", "", "The page of this canvas went somewhere else, or could not be loaded."), element("p", "", again));
  at("stage").append(leftPanel);
  notes.add("page", LEFT);
}

/** It was only slow to answer, and takes its place back. */
function wasThere() {
  if (!leftPanel) return;
  leftPanel.remove();
  leftPanel = null;
  notes.takeBack("page", LEFT);
}

const listOf = (broken) => (Array.isArray(broken) ? broken.slice(0, 50).map((one) => ({ at: String(one?.at).slice(0, 300), says: String(one?.says).slice(0, 1000) })) : []);

// --- consent ----------------------------------------------------------------------------------------------------------

function titleOf(actionId) {
  const actions = watch.whole?.spec.actions ?? {};
  return Object.hasOwn(actions, actionId) ? actions[actionId].title ?? actionId : actionId;
}

/** A person who has decided goes on where they were: in the page of the canvas, or in the lines of what waits. */
function backTo(from) {
  const page = at("stage").querySelector("iframe");
  setTimeout(() => { // the lines are drawn anew first
    if (from === at("waiting")) (from.querySelector("button") ?? page)?.focus();
    else if (from instanceof HTMLIFrameElement && page) {
      page.focus();
      bridge.say("focus"); // while a dialog is open a frame is inert, and forgets what was focused in it
    } else if (from?.isConnected) from.focus();
  });
}

// --- entries that contradict each other -------------------------------------------------------------------------------

function valueAt(path) {
  let here = watch.whole.state;
  for (const part of path.split("/").slice(1)) {
    const name = part.replaceAll("~1", "/").replaceAll("~0", "~");
    here = here !== null && typeof here === "object" && Object.hasOwn(here, name) ? here[name] : undefined;
  }
  return here;
}

function tellConflicts() {
  at("conflicts").hidden = !conflicts.size;
  at("conflicts").replaceChildren(...[...conflicts].map(([path, mine]) => {
    const settle = (keep) => {
      conflicts.delete(path);
      tellConflicts();
      bridge.say("resolve", { pointer: path, keep });
    };
    return element("p", "", element("code", "", `state${path.replaceAll("/", ".")}`), " was changed to ", element("span", "entry", glimpse(valueAt(path) ?? "nothing", 200)),
      " by somebody else while you entered ", element("span", "entry", glimpse(mine, 200)), ". ",
      button("", "Keep mine", () => settle("mine")), button("", "Take theirs", () => settle("theirs")));
  }));
}

// --- the connection ---------------------------------------------------------------------------------------------------

function tellLink(is) {
  at("link").textContent = SAYS[is];
  at("link").className = `link ${is === "signed-out" ? "waiting" : is}`;
  at("try-now").hidden = is !== "waiting";
  at("signed-out").hidden = is !== "signed-out";
  bridge.say("link", { isLive: gateway.isLive });
  if (is === "signed-out" && !unsaved) bare(); // what is shown may belong to somebody who has signed out; what they typed is kept for them to see
  if (is === "live" && frame.hasFailed) frame.show(told({ state: true, info: true }));
}

/** Nothing of the canvas is left to be seen, or to be answered. */
function bare() {
  frame.remove();
  watch.asked.clear();
  asking.tell();
  document.body.classList.add("bare");
  const home = element("a", "", "All canvases");
  home.href = "/";
  at("stage").append(element("div", "left", element("p", "", home)));
}

function over(why) {
  gateway.end("over");
  bare();
  at("over").hidden = false;
  at("over").textContent = why;
}

at("sign-in").href = location.pathname;
at("try-now").onclick = () => gateway.hurry();
addEventListener("beforeunload", (event) => { if (unsaved) event.preventDefault(); });
addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); }); // what is shown may belong to somebody who signed out
gateway.open();
