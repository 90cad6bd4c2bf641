// The home page: start a run, watch its log live, cancel it. The log is the truth: everything shown about a run is read
// from its events, and the browser resumes a dropped stream by the last id it saw.
"use strict";

const EXAMPLES = {
  "Say hello": "Hello!",
  "Use a tool": JSON.stringify({ script: [{ say: "Let me look at the clock." }, { call: "gsv__Clock", args: {} }, { say: "There it is." }] }),
  "Count to twenty": JSON.stringify({ script: [{ ticks: 20, every_ms: 250 }, { say: "Done." }] }),
  "Wait a minute": JSON.stringify({ script: [{ say: "Cancel me." }, { wait_ms: 60000 }, { say: "Nobody did." }] }),
  "Fail": JSON.stringify({ script: [{ say: "This will not end well." }, { fail: "as you asked" }] }),
};
const LOG_ROWS = 500; // the newest; the whole log stays on the server
const at = (id) => document.getElementById(id);
const shown = { runId: null, stream: null, text: "", settled: "" };

async function call(method, path, body) {
  const answer = await fetch(path, { method, body: body && JSON.stringify(body) });
  const value = await answer.json();
  if (!answer.ok) throw new Error(value.error.message);
  return value;
}

const shorten = (text, most) => (text.length > most ? `${text.slice(0, most)}…` : text);

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.textContent = text;
  return made;
}

let listing = 0;
async function listRuns() {
  const asked = ++listing;
  const { runs } = await call("GET", "/api/runs?limit=20");
  if (asked !== listing) return; // a newer answer is on its way
  at("no-runs").hidden = runs.length > 0;
  at("runs").replaceChildren(...runs.map((run) => {
    const button = element("button", "", "");
    button.append(element("span", "what", run.input_text), element("span", `status ${run.status}`, run.status), element("span", "faint", ` in ${run.session_id}`));
    button.setAttribute("aria-current", String(run.run_id === shown.runId));
    button.onclick = () => show(run.run_id);
    const item = document.createElement("li");
    item.append(button);
    return item;
  }));
}

function show(runId) {
  shown.stream?.close();
  Object.assign(shown, { runId, text: "", settled: "" });
  history.replaceState(null, "", `#${runId}`);
  at("run").hidden = false;
  at("run-id").textContent = runId;
  at("log").replaceChildren();
  at("answer").textContent = "";
  at("run-problem").textContent = "";
  at("asked").textContent = "";
  say("");
  at("run").scrollIntoView({ block: "nearest" });
  tell("run-problem", async () => {
    const run = await call("GET", `/api/runs/${runId}`);
    if (shown.runId !== runId) return;
    at("asked").textContent = run.input_text;
    if (!at("run-status").textContent) say(run.status);
  });
  const stream = new EventSource(`/api/runs/${runId}/events?debug=1`);
  stream.onopen = () => { at("stream").textContent = "live"; };
  stream.onerror = () => { at("stream").textContent = stream.readyState === EventSource.CLOSED ? "" : "reconnecting…"; };
  for (const type of ["run.start", "run.status", "message.delta", "message.completed", "reasoning.delta", "step.completed", "tool.call", "tool.result", "done"]) {
    stream.addEventListener(type, (message) => { if (shown.stream === stream) take(JSON.parse(message.data)); });
  }
  shown.stream = stream;
  refresh();
}

function say(status) {
  at("run-status").textContent = status;
  at("run-status").className = `status ${status}`;
  at("cancel").disabled = !["queued", "running"].includes(status);
}

function take({ seq, type, ts, data }) {
  const { visibility, provenance, ...rest } = data;
  if (type === "run.start") {
    say("running");
    shown.text = shown.settled; // a new attempt says again what the lost one had not finished
    if (data.attempt > 1) at("run-problem").textContent = `Attempt ${data.attempt}: another worker goes on from the last finished step.`;
  } else if (type === "message.delta") {
    shown.text += data.text;
  } else if (type === "step.completed") {
    shown.settled = shown.text;
  } else if (type === "message.completed") {
    shown.text = data.text;
    if (data.error) at("run-problem").textContent = data.error;
  } else if (type === "done") {
    say(data.status);
    shown.stream.close();
    at("stream").textContent = "";
    refresh();
  }
  at("answer").textContent = shown.text;
  const row = document.createElement("tr");
  row.append(element("td", "faint", String(seq)), element("td", "", type), element("td", "faint", ts.slice(11, 23)));
  const detail = document.createElement("td");
  detail.append(element("code", "", shorten(JSON.stringify(rest), 400)));
  row.append(detail);
  at("log").append(row);
  if (at("log").childElementCount > LOG_ROWS) at("log").firstElementChild.remove();
}

async function tell(place, action) {
  at(place).textContent = "";
  try { await action(); } catch (problem) { at(place).textContent = problem.message; }
}

const refresh = () => tell("problem", listRuns);

at("start").onsubmit = (event) => {
  event.preventDefault();
  tell("problem", async () => show((await call("POST", "/api/runs", { session_id: at("session").value, message: at("message").value })).run_id));
};
at("cancel").onclick = () => {
  at("cancel").disabled = true;
  tell("run-problem", () => call("POST", `/api/runs/${shown.runId}/cancel`));
};
for (const [name, message] of Object.entries(EXAMPLES)) {
  const chip = element("button", "", name);
  chip.type = "button";
  chip.onclick = () => { at("message").value = message; at("message").focus(); };
  at("examples").append(chip);
}
at("message").value = EXAMPLES["Use a tool"];
refresh();
if (location.hash.startsWith("#run_")) show(location.hash.slice(1));
