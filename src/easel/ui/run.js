// @ts-check
// The state of one run beside the chat: its status, its attempts and its boards.

import {
  attempt, byId, element, isMarker, plainText, readPages, request, shorten, summarize, valueNode,
} from "./values.js";

const BOARDS = ["whiteboard", "blackboard"];
const MAX_INPUT_LENGTH = 200;
const MAX_CELL_LENGTH = 120;

export class RunPanel {
  #entries = new Map(); // by board, edge and key: {version, row}
  #attempt = 0;
  #maxAttempts = null;

  /** `on` has: changed(). */
  constructor(on) {
    this.on = on;
    this.runId = null;
  }

  open(runId) {
    this.runId = runId;
    this.#entries.clear();
    [this.#attempt, this.#maxAttempts] = [0, null];
    byId("run-id").textContent = runId ?? "";
    byId("no-run").hidden = runId !== null;
    byId("run-state").hidden = runId === null;
    for (const id of ["run-problem", "run-attempt", "run-note", "run-asked", "run-link"]) {
      byId(id).textContent = "";
    }
    for (const board of BOARDS) {
      byId(board).tBodies[0].replaceChildren();
      this.#showCount(board);
    }
    this.#showStatus("");
    if (runId) attempt(byId("run-problem"), () => this.#load(runId));
  }

  /** Load the run and its boards: retention may delete events. Older versions of an entry are ignored. */
  async #load(runId) {
    const path = `/api/runs/${encodeURIComponent(runId)}`;
    const [run, ...boards] = await Promise.all([
      request("GET", path), ...BOARDS.map((board) => readPages("entries", (page) => (
        request("GET", `${path}/${board}?${new URLSearchParams(page)}`)
      ))),
    ]);
    if (runId !== this.runId) return;
    if (!this.status) this.#showStatus(run.status, run.error_message);
    this.#showAttempt(run.attempt, run.max_attempts);
    byId("run-asked").textContent = shorten(plainText(run.input_text, run.attachments), MAX_INPUT_LENGTH);
    boards.forEach((entries, index) => {
      for (const entry of entries) this.#write(BOARDS[index], entry);
    });
  }

  handleEvent({ type, ts, data }) {
    if (data.visibility !== "public") return;
    if (type === "run.start") {
      this.#showStatus("running");
      this.#showAttempt(data.attempt);
      if (data.attempt > 1) {
        const text = `Attempt ${data.attempt}: another worker continues after the last finished step.`;
        byId("run-note").textContent = text;
      }
    } else if (type === "whiteboard.write" || type === "blackboard.write") {
      this.#write(type.split(".")[0], { ...data, updated_at: ts });
    } else if (type === "run.status" || type === "done") {
      this.#showStatus(data.status, data.error);
      if (type === "done") this.on.changed();
    }
  }

  showLink({ is, message }) {
    const texts = {
      live: "live",
      waiting: "reconnecting…",
      paused: "paused: other tabs are in use",
      missing: message,
      refused: message,
    };
    byId("run-link").textContent = texts[is] ?? "";
  }

  #showStatus(status, error) {
    this.status = status;
    byId("run-status").textContent = status;
    byId("run-status").className = `status ${status}`;
    if (error) byId("run-problem").textContent = error;
  }

  #showAttempt(number, maximum = this.#maxAttempts) {
    [this.#attempt, this.#maxAttempts] = [Math.max(number, this.#attempt), maximum];
    const limit = maximum ? ` of ${maximum}` : "";
    byId("run-attempt").textContent = this.#attempt ? `attempt ${this.#attempt}${limit}` : "";
  }

  // -- boards

  #write(board, entry) {
    const id = JSON.stringify([board, entry.edge_id ?? null, entry.key]);
    const known = this.#entries.get(id);
    if (known && known.version >= entry.version) return;
    const row = known?.row ?? byId(board).tBodies[0].insertRow();
    this.#entries.set(id, { version: entry.version, row });
    const { kind, agent_id: agent, node_id: node } = entry.provenance;
    const version = element("span", "faint", `v${entry.version}`);
    const time = entry.updated_at.replace("T", " ").slice(0, 19);
    version.title = `written by ${kind ? `${kind} ` : ""}${agent} in ${node} at ${time} UTC`;
    const edge = board === "blackboard" ? [element("code", "", entry.edge_id)] : [];
    const cells = [...edge, element("code", "", entry.key), boardValue(entry.value), version];
    row.replaceChildren(...cells.map((cell) => element("td", "", cell)));
    if (known) {
      row.classList.remove("fresh");
      void row.offsetWidth; // restart the animation
    }
    row.classList.add("fresh");
    this.#showCount(board);
  }

  #showCount(board) {
    const count = byId(board).tBodies[0].rows.length;
    byId(`${board}-count`).textContent = count ? `(${count})` : "is empty";
    byId(board).hidden = !count;
  }
}

/** Return a node for a value of a board; a long value is collapsed. */
function boardValue(value) {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  if (isMarker(value) || text.length <= MAX_CELL_LENGTH) return valueNode(value);
  return element("details", "", element("summary", "", summarize(value, 80)), valueNode(value));
}
