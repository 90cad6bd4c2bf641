// What there is beside the chat: canvases with their pages, the latest runs of all sessions, and the machines that offer tools.

import { at, call, element, glimpse, time } from "./values.js";

const RUNS = 8;
const CANVASES = 200;

const rpc = (method, params = {}) => call("POST", "/api/rpc", { method, params });

function link(href, ...children) {
  const made = element("a", "", ...children);
  made.href = href;
  return made;
}

function fill(list, none, rows) {
  at(list).replaceChildren(...rows.map((row) => element("li", "", ...row)));
  at(none).hidden = rows.length > 0;
}

export class Places {
  #asking = 0;

  /** All of it anew. A part that cannot be read stays as it is: the chat says when the server is away. */
  async refresh() {
    this.#asking += 1;
    const asked = this.#asking;
    const [canvases, runs, nodes] = await Promise.allSettled([rpc("canvas.list", { limit: CANVASES }), call("GET", `/api/runs?limit=${RUNS}`), rpc("nodes.list")]);
    if (asked !== this.#asking) return;
    if (canvases.value) fill("canvas-list", "no-canvases", canvases.value.canvases.map(canvasRow));
    if (runs.value) fill("run-list", "no-runs", runs.value.runs.map(runRow));
    if (nodes.value) fill("node-list", "no-nodes", (nodes.value.nodes ?? []).map(nodeRow));
    at("nodes").hidden = !nodes.value;
  }
}

function canvasRow({ canvasId, agentId, title, updatedAt }) {
  return [link(`/canvas/${encodeURIComponent(agentId)}/${encodeURIComponent(canvasId)}`, title), " ", time(new Date(updatedAt).toISOString())];
}

function runRow({ run_id: runId, session_id: session, status, input_text: asked, created_at: when }) {
  return [link(`#${new URLSearchParams({ session, run: runId })}`, glimpse(asked, 50) || runId), " ", element("span", `status ${status}`, status), " ", time(when)];
}

/** The server itself says how it runs commands, or why it does not. */
function nodeRow({ nodeId, platform, tools = [], bash }) {
  const about = element("span", "faint", [platform, `${tools.length} tools`].filter(Boolean).join(", "));
  return [element("strong", "", nodeId), " ", about, ...(bash ? [" ", element("span", "faint", `Bash: ${bash}`)] : [])];
}
