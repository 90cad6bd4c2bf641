// What there is beside the chat: canvases with their pages, the latest runs of all sessions, and the machines that offer tools.

import { at, attempt, call, element, glimpse, time } from "./values.js";

const RUNS = 8;
const CANVASES = 500; // as many as one answer has
const SHOWN = 8; // canvases, until somebody asks for all: what is below them stays in sight
const OFFERED = 5; // in an empty chat

const rpc = (method, params = {}) => call("POST", "/api/rpc", { method, params });

function link(href, ...children) {
  const made = element("a", "", ...children);
  made.href = href;
  made.dir = "auto"; // and so apart from what stands beside it, whichever way a title is written
  return made;
}

const pageOf = ({ canvasId, agentId }) => `/canvas/${encodeURIComponent(agentId)}/${encodeURIComponent(canvasId)}`;

export class Places {
  #asking = 0;
  #canvases = [];
  #isWhole = false; // whether all canvases are shown
  #drawn = new Map(); // by list, what it shows: one that has not changed stays as it is, with the focus in it

  /** `on` has: made(canvasId). */
  constructor(on) {
    this.on = on;
    at("canvas-search").oninput = () => this.#showCanvases();
    at("more-canvases").onclick = () => {
      this.#isWhole = !this.#isWhole;
      this.#showCanvases();
    };
    at("new-canvas").onclick = () => this.#askTitle(true);
    at("no-new-canvas").onclick = () => this.#askTitle(false);
    at("new-canvas-title").onkeydown = (event) => { if (event.key === "Escape") this.#askTitle(false); };
    at("new-canvas-form").onsubmit = (event) => {
      event.preventDefault();
      attempt(at("places-problem"), () => this.#make(at("new-canvas-title").value.trim()));
    };
  }

  /** All of it anew. A part that cannot be read stays as it is: the chat says when the server is away. */
  async refresh() {
    this.#asking += 1;
    const asked = this.#asking;
    const [canvases, runs, nodes] = await Promise.allSettled([rpc("canvas.list", { limit: CANVASES }), call("GET", `/api/runs?limit=${RUNS}`), rpc("nodes.list")]);
    if (asked !== this.#asking) return;
    if (canvases.value) {
      this.#canvases = canvases.value.canvases.sort((one, other) => other.updatedAt - one.updatedAt);
      this.#showCanvases();
      this.#offerCanvases();
    }
    if (runs.value) this.#fill("run-list", "no-runs", runs.value.runs, runRow);
    if (nodes.value) this.#fill("node-list", "no-nodes", nodes.value.nodes ?? [], nodeRow);
    at("nodes").hidden = !nodes.value;
  }

  /** Where the page of a canvas is, if it is among those that were read. */
  pageOf(canvasId) {
    const known = this.#canvases.find((one) => one.canvasId === canvasId);
    return known ? pageOf(known) : null;
  }

  /** The newest first; in full when asked for, or as far as they have what is searched for. */
  #showCanvases() {
    const all = this.#canvases;
    const words = at("canvas-search").value.trim().toLowerCase();
    const found = all.filter(({ title, canvasId }) => `${title}\n${canvasId}`.toLowerCase().includes(words));
    const isCut = !words && !this.#isWhole && found.length > SHOWN;
    at("canvas-search").hidden = all.length <= SHOWN;
    at("more-canvases").hidden = words !== "" || found.length <= SHOWN;
    at("more-canvases").textContent = isCut ? `All ${all.length}` : "Fewer";
    at("no-canvases").textContent = words ? "No canvas has this in its title or id." : "None yet. A canvas is a page with buttons that run tools.";
    this.#fill("canvas-list", "no-canvases", isCut ? found.slice(0, SHOWN) : found, canvasRow);
  }

  /** For who has nothing to say yet, and on a phone for who does not know where else to look. */
  #offerCanvases() {
    at("first-canvases-part").hidden = !this.#canvases.length;
    this.#draw("first-canvases", this.#canvases.slice(0, OFFERED), (one) => link(pageOf(one), one.title));
    this.#draw("canvas-ids", this.#canvases, ({ canvasId, title }) => Object.assign(element("option", "", title), { value: canvasId }));
  }

  #fill(list, none, rows, rowOf) {
    at(none).hidden = rows.length > 0;
    this.#draw(list, rows, (row) => element("li", "", ...rowOf(row)));
  }

  #draw(place, rows, nodeOf) {
    const now = JSON.stringify(rows);
    if (this.#drawn.get(place) === now) return;
    this.#drawn.set(place, now);
    at(place).replaceChildren(...rows.map(nodeOf));
  }

  #askTitle(isOn) {
    at("new-canvas-form").hidden = !isOn;
    at("places-problem").textContent = "";
    at("new-canvas-title").value = "";
    at(isOn ? "new-canvas-title" : "new-canvas").focus();
  }

  /** With an id that resembles its title; its page says what it lacks. */
  async #make(title) {
    const like = title.normalize("NFKD").toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 60);
    const isTaken = this.#canvases.some(({ canvasId }) => canvasId === like);
    const canvasId = like && !isTaken ? like : `${like || "canvas"}-${crypto.getRandomValues(new Uint32Array(1))[0].toString(36)}`;
    const { descriptor } = await rpc("canvas.create", { canvasId, title });
    this.on.made(canvasId);
    location.assign(pageOf(descriptor));
  }
}

function canvasRow(canvas) {
  return [link(pageOf(canvas), canvas.title), " ", time(new Date(canvas.updatedAt).toISOString())];
}

function runRow({ run_id: runId, session_id: session, status, input_text: asked, created_at: when }) {
  return [link(`#${new URLSearchParams({ session, run: runId })}`, glimpse(asked, 50) || runId), " ", element("span", `status ${status}`, status), " ", time(when)];
}

/** The server itself says how it runs commands, or why it does not. */
function nodeRow({ nodeId, platform, tools = [], bash }) {
  const about = element("span", "faint", [platform, `${tools.length} tools`].filter(Boolean).join(", "));
  return [element("strong", "", nodeId), " ", about, ...(bash ? [" ", element("span", "faint", `Bash: ${bash}`)] : [])];
}
