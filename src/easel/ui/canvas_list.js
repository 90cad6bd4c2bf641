// @ts-check
// The lists beside the chat: canvases with their pages, the latest runs of all sessions, and tool nodes.

import { attempt, byId, element, plainText, readPages, request, summarize, time } from "./values.js";

const RUN_LIMIT = 8;
const CANVAS_LIMIT = 500; // the limit of one response
const SHORT_LIST = 8; // canvases that are shown until the user asks for all
const MAX_SUGGESTED = 5; // canvases in an empty chat

const rpc = (method, params = {}) => request("POST", "/api/rpc", { method, params });

function link(href, ...children) {
  const node = element("a", "", ...children);
  node.href = href;
  node.dir = "auto"; // isolates a title in another writing direction
  return node;
}

const pageOf = ({ canvasId, agentId }) => (
  `/canvas/${encodeURIComponent(agentId)}/${encodeURIComponent(canvasId)}`
);

export class Overview {
  #requestCount = 0;
  #canvases = [];
  #showsAll = false;
  // By list: its content as JSON; an unchanged list is not drawn again and keeps the focus.
  #drawn = new Map();

  /** `on` has: created(canvasId). */
  constructor(on) {
    this.on = on;
    byId("canvas-search").oninput = () => this.#showCanvases();
    byId("more-canvases").onclick = () => {
      this.#showsAll = !this.#showsAll;
      this.#showCanvases();
    };
    byId("new-canvas").onclick = () => this.#showForm(true);
    byId("no-new-canvas").onclick = () => this.#showForm(false);
    byId("new-canvas-title").onkeydown = (event) => { if (event.key === "Escape") this.#showForm(false); };
    byId("new-canvas-form").onsubmit = (event) => {
      event.preventDefault();
      attempt(byId("places-problem"), () => this.#create(byId("new-canvas-title").value.trim()));
    };
  }

  /**
   * Load all lists. A list that cannot be loaded stays as it is: the chat shows that the server is
   * unreachable.
   */
  async refresh() {
    const number = (this.#requestCount += 1);
    const answers = await Promise.allSettled([
      readPages("canvases", (page) => rpc("canvas.list", { limit: CANVAS_LIMIT, ...page })),
      request("GET", `/api/runs?limit=${RUN_LIMIT}`),
      readPages("nodes", (page) => rpc("nodes.list", page)),
    ]);
    if (number !== this.#requestCount) return;
    const values = answers.map((answer) => (answer.status === "fulfilled" ? answer.value : null));
    const [canvases, runs, nodes] = values;
    if (canvases) {
      this.#canvases = canvases.sort((first, second) => second.updatedAt - first.updatedAt);
      this.#showCanvases();
      this.#suggestCanvases();
    }
    if (runs) this.#fill("run-list", "no-runs", runs.runs, runRow);
    if (nodes) this.#fill("node-list", "no-nodes", nodes, nodeRow);
    byId("nodes").hidden = !nodes;
  }

  /** Return the address of a canvas's page, or null for an unknown canvas. */
  pageOf(canvasId) {
    const known = this.#canvases.find((canvas) => canvas.canvasId === canvasId);
    return known ? pageOf(known) : null;
  }

  /** Show the newest canvases, all of them, or those that match the search. */
  #showCanvases() {
    const all = this.#canvases;
    const words = byId("canvas-search").value.trim().toLowerCase();
    const matches = ({ title, canvasId }) => `${title}\n${canvasId}`.toLowerCase().includes(words);
    const found = all.filter(matches);
    const isCut = !words && !this.#showsAll && found.length > SHORT_LIST;
    byId("canvas-search").hidden = all.length <= SHORT_LIST;
    byId("more-canvases").hidden = words !== "" || found.length <= SHORT_LIST;
    byId("more-canvases").textContent = isCut ? `All ${all.length}` : "Fewer";
    byId("no-canvases").textContent = words
      ? "No canvas has this in its title or id."
      : "None yet. A canvas is a page with buttons that run tools.";
    this.#fill("canvas-list", "no-canvases", isCut ? found.slice(0, SHORT_LIST) : found, canvasRow);
  }

  /** Suggest canvases in an empty chat, and in the field of the snapshot panel. */
  #suggestCanvases() {
    const toOption = ({ canvasId, title }) => (
      Object.assign(element("option", "", title), { value: canvasId })
    );
    const toLink = (canvas) => link(pageOf(canvas), canvas.title);
    byId("first-canvases-part").hidden = !this.#canvases.length;
    this.#draw("first-canvases", this.#canvases.slice(0, MAX_SUGGESTED), toLink);
    this.#draw("canvas-ids", this.#canvases, toOption);
  }

  #fill(listId, emptyId, rows, toCells) {
    byId(emptyId).hidden = rows.length > 0;
    this.#draw(listId, rows, (row) => element("li", "", ...toCells(row)));
  }

  #draw(id, rows, toNode) {
    const content = JSON.stringify(rows);
    if (this.#drawn.get(id) === content) return;
    this.#drawn.set(id, content);
    byId(id).replaceChildren(...rows.map(toNode));
  }

  #showForm(isOn) {
    byId("new-canvas-form").hidden = !isOn;
    byId("places-problem").textContent = "";
    byId("new-canvas-title").value = "";
    byId(isOn ? "new-canvas-title" : "new-canvas").focus();
  }

  /** Create a canvas with an id made from its title, and open its page. */
  async #create(title) {
    const ascii = title.normalize("NFKD").toLowerCase().replace(/[^a-z0-9]+/g, "-");
    const slug = ascii.replace(/^-+|-+$/g, "").slice(0, 60);
    const isTaken = this.#canvases.some((canvas) => canvas.canvasId === slug);
    const suffix = crypto.getRandomValues(new Uint32Array(1))[0].toString(36);
    const canvasId = slug && !isTaken ? slug : `${slug || "canvas"}-${suffix}`;
    const { descriptor } = await rpc("canvas.create", { canvasId, title });
    this.on.created(canvasId);
    location.assign(pageOf(descriptor));
  }
}

function canvasRow(canvas) {
  return [link(pageOf(canvas), canvas.title), " ", time(new Date(canvas.updatedAt).toISOString())];
}

function runRow({ run_id: run, session_id: session, status, created_at: createdAt, ...input }) {
  const title = summarize(plainText(input.input_text, input.attachments), 50) || run;
  const address = `#${new URLSearchParams({ session, run })}`;
  return [link(address, title), " ", element("span", `status ${status}`, status), " ", time(createdAt)];
}

/** Return the cells of a node. The server's own node also has the mode of its shell, or why it has none. */
function nodeRow({ nodeId, platform, tools = [], bash }) {
  const details = [platform, `${tools.length} tools`].filter(Boolean).join(", ");
  const shell = bash ? [" ", element("span", "faint", `Bash: ${bash}`)] : [];
  return [element("strong", "", nodeId), " ", element("span", "faint", details), ...shell];
}
