// The console: sessions, the chat of one of them, the state of its run, and a canvas, all live.
//
// Owns what is chosen (it stands in the address, so a reload and a link show the same) and which streams that takes. The
// page watches the chat, the run and the canvas at the same time (CC-30); how, is for `watching` to know.

import { CanvasPanel } from "./canvas.js";
import { Places } from "./canvas_list.js";
import { Chat } from "./chat.js";
import { RunPanel } from "./run.js";
import { SessionList } from "./sessions.js";
import { at, attempt, button, call } from "./values.js";
import { Watching } from "./watching.js";

const script = (...steps) => JSON.stringify({ script: steps });
const EXAMPLES = {
  "Use some tools": script(
    { say: "Let me look at the clock." },
    { call: "gsv__Clock", args: {} },
    { say: "I write the time on the whiteboard, and hand it on over the blackboard." },
    { call: "gsv__WhiteboardWrite", args: { key: "time", value: "$1.now" } },
    { call: "gsv__BlackboardWrite", args: { edge_id: "clock-reader", key: "time", value: "$1.now" } },
    { say: "There it is: the run's boards have it." },
  ),
  "Say hello": "Hello!",
  "Think first": script({ think: "They want to see a thought. It is internal: only with Debug on is it sent at all." }, { say: "I have thought about it." }),
  "Count to twenty": script({ ticks: 20, every_ms: 250 }, { say: "Done." }),
  "Wait a minute": script({ say: "Stop me." }, { wait_ms: 60_000 }, { say: "Nobody did." }),
  "Fail": script({ say: "This will not end well." }, { fail: "as you asked" }),
};
const FIRST_SESSION = "main";
const DRAFT = "easel-draft-"; // and the session: what was typed there and not sent outlives a reload
const DEBUG = "easel-debug"; // kept for this tab only: no link switches it on for somebody else
const GATHER_MS = 60; // a thread that is told from its beginning asks for the same again and again

const shown = { session: null, run: null, canvas: undefined };
const links = { chat: null, run: null, canvas: null };
let activeRun; // undefined: not known yet; null: none
let asking = 0;
let isStopping = false;

const watching = new Watching({ told });
const sessions = new SessionList({ choose: (session) => go({ session, run: null, view: "chat" }), changed: () => watching.tellOthers("sessions"), gone: leaveDeleted });
const chat = new Chat({ changed: chatChanged, show: (run) => go({ run, view: "state" }), cancel: cancelRun, sayAgain: (key) => links.chat.sayAgain(key), unsay: (key) => links.chat.unsay(key) });
const run = new RunPanel({ restarted: (runId, ts) => chat.restarted(runId, ts), changed: () => lookAtRuns() });
const places = new Places({ made: () => watching.tellOthers("canvases") });
const canvas = new CanvasPanel({ open: (id) => go({ canvas: id }), created: canvasMade, pageOf: (id) => places.pageOf(id) });

// --- what is chosen ---------------------------------------------------------------------------------------------------

function chosen() {
  const asked = new URLSearchParams(location.hash.slice(1));
  return { session: asked.get("session") || shown.session || sessions.newest || FIRST_SESSION, run: asked.get("run"), canvas: asked.get("canvas") || null };
}

function address({ session, run: runId, canvas: canvasId }) {
  return `#${new URLSearchParams({ session, ...(runId && { run: runId }), ...(canvasId && { canvas: canvasId }) })}`;
}

function go({ view, ...change }) {
  const there = address({ ...chosen(), ...change });
  if (location.hash !== there) history.pushState(null, "", there);
  if (view) setView(view);
  showChosen();
}

function showChosen() {
  const want = chosen();
  if (want.session !== shown.session) openChat(want.session);
  if (want.canvas !== shown.canvas) openCanvas(want.canvas);
  showRun();
}

// --- the chat ---------------------------------------------------------------------------------------------------------

function openChat(session) {
  shown.session = session;
  activeRun = undefined;
  isStopping = false;
  links.chat?.leave();
  chat.begin(session, at("debug").checked);
  at("chat-problem").textContent = "";
  at("message").value = sessionStorage.getItem(DRAFT + session) ?? "";
  sessions.choose(session);
  links.chat = watching.watch("chat", session, hearChat, { wantsInternal: at("debug").checked, isNew: sessions.lacks(session) });
}

function hearChat(message) {
  if (message.what === "anew") chat.startAnew(message.history, message.events);
  if (message.what === "event") chat.hear(message.event);
  if (message.what === "outbox") chat.waiting(message.outbox);
  if (message.what === "problem") {
    at("chat-problem").textContent = message.says;
    isStopping = false;
    chatChanged();
  }
  if (message.what === "state") tellLink(message.state);
  if (message.what === "anew" || message.state?.is === "live" || message.event?.type === "message.completed") lookAround();
}

let looking = null;
function lookAround() {
  looking ??= setTimeout(() => {
    looking = null;
    lookAtRuns();
    sessions.refresh();
    lookAtPlaces();
  }, GATHER_MS);
}

async function lookAtPlaces() {
  await places.refresh();
  canvas.tellPage();
}

function tellLink(state) {
  const says = {
    connecting: "connecting…",
    live: "connected",
    waiting: "The server cannot be reached. Reconnecting…",
    missing: "This session was deleted.",
    refused: state.says,
    "signed-out": "You are signed out.",
  };
  at("link").textContent = says[state.is];
  at("link").className = `link ${state.is}`;
  at("try-now").hidden = state.is !== "waiting";
  if (state.is === "signed-out") signedOut();
  if (state.is === "missing") leaveDeleted(shown.session);
}

/** Which runs of the session have not ended, oldest first: the first one is at work, the others wait. */
async function lookAtRuns() {
  const asked = (asking += 1);
  const { session } = shown;
  const found = await call("GET", `/api/runs?session_id=${encodeURIComponent(session)}&statuses=queued,running&limit=200`).catch(() => null);
  if (!found || asked !== asking || session !== shown.session) return; // when the server is back, the chat asks again
  const live = found.runs.reverse().map((one) => one.run_id);
  if (live[0] !== activeRun) isStopping = false;
  activeRun = live[0] ?? null;
  chat.alive(live);
}

function chatChanged() {
  at("welcome").hidden = !chat.isEmpty;
  at("turns").hidden = chat.isEmpty;
  at("stop").disabled = !activeRun || isStopping;
  at("stop").textContent = isStopping ? "Stopping…" : "Stop";
  showRun();
}

function say(text) {
  chat.isFollowing = true; // who speaks is at the end
  links.chat.say(text);
}

async function sayExample(name, text) {
  const { session } = shown;
  await sessions.nameFirst(name);
  if (session === shown.session) say(text);
  at("message").focus();
}

function cancelRun(runId) {
  attempt(at("chat-problem"), async () => {
    await call("POST", `/api/runs/${encodeURIComponent(runId)}/cancel`);
    await lookAtRuns();
    watching.tellOthers("runs");
  });
}

function leaveDeleted(session) {
  if (session !== shown.session) return;
  shown.session = null;
  links.chat.leave();
  sessions.refresh().then(() => {
    go({ session: sessions.newest ?? FIRST_SESSION, run: null });
    at("chat-problem").textContent = `The session ${session} was deleted.`;
  });
}

// --- the run and the canvas -------------------------------------------------------------------------------------------

/** The run that was asked for, or the one at work, or the last that said something. */
function showRun() {
  const asked = chosen().run;
  at("follow").hidden = !asked;
  if (!asked && activeRun === undefined) return;
  const want = asked ?? activeRun ?? chat.newestRun;
  if (want === shown.run) return;
  shown.run = want;
  links.run?.leave();
  run.begin(want);
  links.run = want && watching.watch("run", want, (message) => {
    for (const event of message.events ?? []) run.hear(event);
    if (message.what === "event") run.hear(message.event);
    if (message.what === "state") run.tell(message.state);
  });
}

function openCanvas(canvasId) {
  shown.canvas = canvasId;
  links.canvas?.leave();
  canvas.begin(canvasId);
  links.canvas = canvasId && watching.watch("canvas", canvasId, (message) => {
    if (message.what === "anew") canvas.startAnew();
    for (const event of message.events ?? []) canvas.hear(event);
    if (message.what === "event") canvas.hear(message.event);
    if (message.what === "state") canvas.tell(message.state);
  });
}

function canvasMade(canvasId) {
  openCanvas(canvasId);
  lookAtPlaces();
  watching.tellOthers("canvases");
}

// --- the rest of the page ---------------------------------------------------------------------------------------------

function told(what) {
  if (what === "sessions") sessions.refresh();
  if (what === "runs") lookAtRuns();
  if (what === "canvases") lookAtPlaces();
  if (what === "canvases" && canvas.isMissing) openCanvas(shown.canvas);
}

function signedOut() {
  at("signed-out").hidden = false;
}

function keepDraft() {
  if (at("message").value) sessionStorage.setItem(DRAFT + shown.session, at("message").value);
  else sessionStorage.removeItem(DRAFT + shown.session);
}

function setView(view) {
  document.body.dataset.view = view;
  for (const one of document.querySelectorAll("#views button")) one.setAttribute("aria-pressed", String(one.dataset.view === view));
}

at("composer").onsubmit = (event) => {
  event.preventDefault();
  const text = at("message").value;
  if (!text.trim()) return;
  say(text);
  at("message").value = "";
  keepDraft();
};
at("message").oninput = keepDraft;
at("message").onkeydown = (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  at("composer").requestSubmit();
};
at("stop").onclick = () => {
  isStopping = true;
  links.chat.stop();
  chatChanged();
};
at("debug").onchange = () => {
  if (at("debug").checked) sessionStorage.setItem(DEBUG, "on");
  else sessionStorage.removeItem(DEBUG);
  openChat(shown.session);
};
at("follow").onclick = () => go({ run: null });
at("try-now").onclick = () => watching.tryNow();
at("sign-out").onsubmit = () => watching.signOut();
for (const one of document.querySelectorAll("#views button")) one.onclick = () => setView(one.dataset.view);
for (const [place, [name, message]] of Object.entries(EXAMPLES).entries()) {
  at(place ? "examples" : "first-example").append(button(place ? "" : "main", name, () => sayExample(name, message)));
  at("more-examples").append(button("", name, () => { at("message").value = message; keepDraft(); at("message").focus(); }));
}
document.addEventListener("signed-out", signedOut);
addEventListener("beforeunload", (event) => { if (chat.hasUnsent) event.preventDefault(); });
addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); }); // what is shown may belong to somebody who signed out
at("debug").checked = sessionStorage.getItem(DEBUG) === "on";

await watching.connect();
await sessions.refresh();
history.replaceState(null, "", address(chosen()));
showChosen();
addEventListener("popstate", showChosen);
addEventListener("focus", () => { // other programs make sessions and canvases too
  lookAround();
  if (canvas.isMissing) openCanvas(shown.canvas);
});
document.querySelector("main").inert = false;
