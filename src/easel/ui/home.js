// @ts-check
// The console: sessions, the chat of one session, the state of its run, and a canvas, all live.
//
// Owns the selection and its subscriptions. The selection is stored in the address, so that a reload or a
// link shows the same. The page subscribes to the chat, the run and the canvas at the same time. CC-30

import { Overview } from "./canvas_list.js";
import { SnapshotPanel } from "./canvas_snapshots.js";
import { Chat } from "./chat.js";
import { ModelSettings } from "./model_settings.js";
import { RunPanel } from "./run.js";
import { SessionList } from "./sessions.js";
import { Subscriptions } from "./subscriptions.js";
import { attempt, button, byId, request, sizeOf } from "./values.js";

const script = (...steps) => JSON.stringify({ script: steps });
const EXAMPLES = {
  "Use some tools": script(
    { say: "I will read the clock." },
    { call: "gsv__Clock", args: {} },
    { say: "I write the time to the whiteboard, and pass it on over the blackboard." },
    { call: "gsv__WhiteboardWrite", args: { key: "time", value: "$1.now" } },
    { call: "gsv__BlackboardWrite", args: { edge_id: "clock-reader", key: "time", value: "$1.now" } },
    { say: "Done: the time is on both boards of the run." },
  ),
  "Say hello": "Hello!",
  "Think first": script(
    { think: "This is a thought. It is internal and is sent only while Debug is on." },
    { say: "I have thought about it." },
  ),
  "Count to twenty": script({ ticks: 20, every_ms: 250 }, { say: "Done." }),
  "Wait a minute": script({ say: "Stop me." }, { wait_ms: 60_000 }, { say: "I was not stopped." }),
  "Fail": script({ say: "This run will fail." }, { fail: "as requested" }),
};
const FIRST_SESSION = "main";
const DRAFT_KEY = "easel-draft-"; // followed by the session id: an unsent message survives a reload
const REFUSED_KEY = "easel-refused-"; // the same for the texts of refused messages, as JSON
const MAX_MESSAGE_BYTES = Number(document.body.dataset.maxMessageBytes);
const DEBUG_KEY = "easel-debug"; // stored for this tab only: a link cannot switch it on
const RELOAD_MS = 60; // requests within this time cause one reload: a replayed thread makes many

const shown = { session: null, run: null, canvas: undefined };
const streams = { chat: null, run: null, canvas: null };
let activeRun; // undefined: not loaded; null: none
let requestCount = 0;
let isStopping = false;

const subscriptions = new Subscriptions({ broadcast: handleBroadcast });
const sessions = new SessionList({
  choose: (session) => go({ session, run: null, view: "chat" }),
  changed: () => subscriptions.broadcast("sessions"),
  deleted: leaveDeleted,
});
const chat = new Chat({
  changed: chatChanged,
  show: (run) => go({ run, view: "state" }),
  cancel: cancelRun,
  resend: (key) => streams.chat.resend(key),
  discard: (key) => streams.chat.discard(key),
  edit: (key, text) => {
    streams.chat.discard(key);
    addToDraft([text]);
    byId("message").focus();
  },
});
const run = new RunPanel({ changed: () => loadActiveRuns() });
const overview = new Overview({ created: () => subscriptions.broadcast("canvases") });
const canvas = new SnapshotPanel({
  open: (id) => go({ canvas: id }),
  created: handleCanvasCreated,
  pageOf: (id) => overview.pageOf(id),
});

// --- the selection -----------------------------------------------------------------------------------------

function selection() {
  const params = new URLSearchParams(location.hash.slice(1));
  return {
    session: params.get("session") || shown.session || sessions.newest || FIRST_SESSION,
    run: params.get("run"),
    canvas: params.get("canvas") || null,
  };
}

function address({ session, run: runId, canvas: canvasId }) {
  const optional = { ...(runId && { run: runId }), ...(canvasId && { canvas: canvasId }) };
  return `#${new URLSearchParams({ session, ...optional })}`;
}

/** @param {{view?: any, [name: string]: any}} change */
function go({ view, ...change }) {
  const hash = address({ ...selection(), ...change });
  if (location.hash !== hash) history.pushState(null, "", hash);
  if (view) setView(view);
  showSelection();
}

function showSelection() {
  const selected = selection();
  if (selected.session !== shown.session) openChat(selected.session);
  if (selected.canvas !== shown.canvas) openCanvas(selected.canvas);
  showRun();
}

// --- the chat ----------------------------------------------------------------------------------------------

function openChat(session) {
  shown.session = session;
  activeRun = undefined;
  isStopping = false;
  streams.chat?.close();
  const includeInternal = byId("debug").checked;
  chat.open(session, includeInternal);
  byId("chat-problem").textContent = "";
  byId("message").value = sessionStorage.getItem(DRAFT_KEY + session) ?? "";
  addToDraft(JSON.parse(sessionStorage.getItem(REFUSED_KEY + session) ?? "[]"));
  sessions.choose(session);
  const options = { includeInternal, isNew: sessions.lacks(session) };
  streams.chat = subscriptions.subscribe("chat", session, handleChat, options);
}

function handleChat(message) {
  if (message.type === "reset") chat.reset(message.history, message.events);
  if (message.type === "event") chat.handleEvent(message.event);
  if (message.type === "outbox") {
    chat.setOutbox(message.outbox);
    const refused = message.outbox.filter((entry) => entry.is === "refused").map(({ text }) => text);
    store(REFUSED_KEY, refused.length ? JSON.stringify(refused) : "");
  }
  if (message.type === "problem") {
    byId("chat-problem").textContent = message.message;
    isStopping = false;
    chatChanged();
  }
  if (message.type === "state") showLink(message.state);
  const isLive = message.state?.is === "live";
  if (message.type === "reset" || isLive || message.event?.type === "message.completed") reloadSoon();
}

let reloadTimer = null;
function reloadSoon() {
  reloadTimer ??= setTimeout(() => {
    reloadTimer = null;
    loadActiveRuns();
    sessions.refresh();
    loadOverview();
  }, RELOAD_MS);
}

async function loadOverview() {
  await overview.refresh();
  canvas.updateLink();
}

function showLink({ is, message }) {
  const texts = {
    connecting: "connecting…",
    live: "connected",
    slow: "No answer from the server yet…",
    waiting: "The server cannot be reached. Reconnecting…",
    missing: "This session was deleted.",
    refused: message,
    "signed-out": "You are signed out.",
  };
  byId("link").textContent = texts[is];
  byId("link").className = `link ${is}`;
  byId("try-now").hidden = is !== "waiting";
  if (is === "signed-out") showSignedOut();
  if (is === "missing") leaveDeleted(shown.session);
}

/** Load the unfinished runs of the session, oldest first: the first one runs, the others are queued. */
async function loadActiveRuns() {
  const number = (requestCount += 1);
  const { session } = shown;
  const query = `session_id=${encodeURIComponent(session)}&statuses=queued,running&limit=200`;
  // A failure is ignored: after a reconnect the runs are loaded again.
  const found = await request("GET", `/api/runs?${query}`).catch(() => null);
  if (!found || number !== requestCount || session !== shown.session) return;
  const active = found.runs.reverse().map((row) => row.run_id);
  if (active[0] !== activeRun) isStopping = false;
  activeRun = active[0] ?? null;
  chat.setActiveRuns(active);
}

function chatChanged() {
  byId("welcome").hidden = !chat.isEmpty;
  byId("turns").hidden = chat.isEmpty;
  byId("stop").disabled = !activeRun || isStopping;
  byId("stop").textContent = isStopping ? "Stopping…" : "Stop";
  showRun();
}

function send(text) {
  chat.isFollowing = true;
  streams.chat.send(text);
}

async function sendExample(name, text) {
  const { session } = shown;
  await sessions.nameFirst(name);
  if (session === shown.session) send(text);
  byId("message").focus();
}

function cancelRun(runId) {
  attempt(byId("chat-problem"), async () => {
    await request("POST", `/api/runs/${encodeURIComponent(runId)}/cancel`);
    await loadActiveRuns();
    subscriptions.broadcast("runs");
  });
}

function leaveDeleted(session) {
  if (session !== shown.session) return;
  shown.session = null;
  streams.chat.close();
  sessions.refresh().then(() => {
    go({ session: sessions.newest ?? FIRST_SESSION, run: null });
    byId("chat-problem").textContent = `The session ${session} was deleted.`;
  });
}

// --- the run and the canvas --------------------------------------------------------------------------------

/** Show the selected run, else the active one, else the last one with an answer. */
function showRun() {
  const selected = selection().run;
  byId("follow").hidden = !selected;
  if (!selected && activeRun === undefined) return;
  const runId = selected ?? activeRun ?? chat.newestRun;
  if (runId === shown.run) return;
  shown.run = runId;
  streams.run?.close();
  run.open(runId);
  streams.run = runId && subscriptions.subscribe("run", runId, (message) => {
    for (const event of message.events ?? []) run.handleEvent(event);
    if (message.type === "event") run.handleEvent(message.event);
    if (message.type === "state") run.showLink(message.state);
  });
}

function openCanvas(canvasId) {
  shown.canvas = canvasId;
  streams.canvas?.close();
  canvas.open(canvasId);
  streams.canvas = canvasId && subscriptions.subscribe("canvas", canvasId, (message) => {
    if (message.type === "reset") canvas.reset();
    for (const event of message.events ?? []) canvas.handleEvent(event);
    if (message.type === "event") canvas.handleEvent(message.event);
    if (message.type === "state") canvas.showState(message.state);
  });
}

function handleCanvasCreated(canvasId) {
  openCanvas(canvasId);
  loadOverview();
  subscriptions.broadcast("canvases");
}

// --- other tabs, drafts and controls -----------------------------------------------------------------------

/** Reload the list that another tab has changed. */
function handleBroadcast(topic) {
  if (topic === "sessions") sessions.refresh();
  if (topic === "runs") loadActiveRuns();
  if (topic === "canvases") loadOverview();
  if (topic === "canvases" && canvas.isMissing) openCanvas(shown.canvas);
}

function showSignedOut() {
  byId("signed-out").hidden = false;
}

function store(key, text) {
  sessionStorage.removeItem(key + shown.session);
  try {
    if (text) sessionStorage.setItem(key + shown.session, text);
  } catch {
    // It is larger than a browser stores: it is kept until the page is left.
  }
}

function storeDraft() {
  store(DRAFT_KEY, byId("message").value);
  showLength();
}

/** Put texts that were not accepted below the draft, unless they are in it. */
function addToDraft(texts) {
  const draft = byId("message").value;
  const missing = texts.filter((text) => !draft.includes(text));
  byId("message").value = [draft, ...missing].filter(Boolean).join("\n\n");
  storeDraft();
}

/** Say that a draft is too long to be sent. Returns whether it is. */
function showLength() {
  const [has, may] = [sizeOf(byId("message").value), MAX_MESSAGE_BYTES];
  const [size, limit] = [has, may].map((bytes) => bytes.toLocaleString());
  const text = `This message has ${size} bytes; a message may have ${limit}. Shorten or split it.`;
  byId("too-long").textContent = has > may ? text : "";
  return has > may;
}

/** @returns {NodeListOf<HTMLElement>} */
const viewButtons = () => document.querySelectorAll("#views button");

function setView(view) {
  document.body.dataset.view = view;
  for (const node of viewButtons()) node.setAttribute("aria-pressed", String(node.dataset.view === view));
}

byId("composer").onsubmit = (event) => {
  event.preventDefault();
  const text = byId("message").value;
  if (!text.trim() || showLength()) return; // the server would refuse it
  send(text);
  byId("message").value = "";
  storeDraft();
};
byId("message").oninput = storeDraft;
byId("message").onkeydown = (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  byId("composer").requestSubmit();
};
byId("stop").onclick = () => {
  isStopping = true;
  streams.chat.cancelRun();
  chatChanged();
};
byId("debug").onchange = () => {
  if (byId("debug").checked) sessionStorage.setItem(DEBUG_KEY, "on");
  else sessionStorage.removeItem(DEBUG_KEY);
  openChat(shown.session);
};
byId("follow").onclick = () => go({ run: null });
byId("try-now").onclick = () => subscriptions.retryNow();
byId("sign-out").onsubmit = () => subscriptions.signOut();
for (const node of viewButtons()) node.onclick = () => setView(node.dataset.view);
for (const [index, [name, message]] of Object.entries(EXAMPLES).entries()) {
  const [list, className] = index ? ["examples", ""] : ["first-example", "main"];
  byId(list).append(button(className, name, () => sendExample(name, message)));
  byId("more-examples").append(button("", name, () => {
    byId("message").value = message;
    storeDraft();
    byId("message").focus();
  }));
}
document.addEventListener("signed-out", showSignedOut);
addEventListener("beforeunload", (event) => { if (chat.hasUnsent) event.preventDefault(); });
// The browser restored the page from its cache: the user may have signed out.
addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
byId("debug").checked = sessionStorage.getItem(DEBUG_KEY) === "on";

await subscriptions.connect();
await sessions.refresh();
history.replaceState(null, "", address(selection()));
showSelection();
addEventListener("popstate", showSelection);
addEventListener("focus", () => { // other programs create sessions and canvases too
  reloadSoon();
  if (canvas.isMissing) openCanvas(shown.canvas);
});
new ModelSettings().refresh();
document.querySelector("main").inert = false;
