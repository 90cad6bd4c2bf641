// The state of one run beside the chat: its status, its attempts, and its boards as they are written.

import { at, attempt, call, element, glimpse, isMarker, shorten, valueNode } from "./values.js";

const BOARDS = ["whiteboard", "blackboard"];

export class RunPanel {
  #places = new Map(); // what stands on the boards, by board, edge and key
  #attempt = 0;
  #most = null;

  /** `on` has: restarted(runId, ts), changed(). */
  constructor(on) {
    this.on = on;
    this.runId = null;
  }

  begin(runId) {
    this.runId = runId;
    this.#places.clear();
    [this.#attempt, this.#most] = [0, null];
    at("run-id").textContent = runId ?? "";
    at("no-run").hidden = runId !== null;
    at("run-state").hidden = runId === null;
    for (const place of ["run-problem", "run-attempt", "run-note", "run-asked", "run-link"]) at(place).textContent = "";
    for (const board of BOARDS) {
      at(board).tBodies[0].replaceChildren();
      this.#count(board);
    }
    this.#say("");
    if (runId) attempt(at("run-problem"), () => this.#look(runId));
  }

  /** What the log may no longer tell, because it was shortened. Versions decide what is newer. */
  async #look(runId) {
    const about = `/api/runs/${encodeURIComponent(runId)}`;
    const [run, ...boards] = await Promise.all([call("GET", about), ...BOARDS.map((board) => call("GET", `${about}/${board}`))]);
    if (runId !== this.runId) return;
    if (!this.status) this.#say(run.status, run.error_message);
    this.#tellAttempt(run.attempt, run.max_attempts);
    at("run-asked").textContent = shorten(run.input_text, 200);
    boards.forEach(({ entries }, place) => { for (const entry of entries) this.#write(BOARDS[place], entry); });
  }

  hear({ type, ts, data }) {
    if (data.visibility !== "public") return;
    if (type === "run.start") {
      this.#say("running");
      this.#tellAttempt(data.attempt);
      if (data.attempt > 1) {
        at("run-note").textContent = `Attempt ${data.attempt}: another worker goes on from the last finished step.`;
        this.on.restarted(this.runId, ts);
      }
    } else if (type === "whiteboard.write" || type === "blackboard.write") {
      this.#write(type.split(".")[0], { ...data, updated_at: ts });
    } else if (type === "run.status" || type === "done") {
      this.#say(data.status, data.error);
      if (type === "done") this.on.changed();
    }
  }

  tell(state) {
    const says = { live: "live", waiting: "reconnecting…", resting: "resting: other tabs are in use", missing: state.says, refused: state.says };
    at("run-link").textContent = says[state.is] ?? "";
  }

  #say(status, error) {
    this.status = status;
    at("run-status").textContent = status;
    at("run-status").className = `status ${status}`;
    if (error) at("run-problem").textContent = error;
  }

  #tellAttempt(number, most = this.#most) {
    [this.#attempt, this.#most] = [Math.max(number, this.#attempt), most];
    at("run-attempt").textContent = this.#attempt ? `attempt ${this.#attempt}${most ? ` of ${most}` : ""}` : "";
  }

  // -- boards

  #write(board, entry) {
    const place = JSON.stringify([board, entry.edge_id ?? null, entry.key]);
    const known = this.#places.get(place);
    if (known && known.version >= entry.version) return;
    const row = known?.row ?? at(board).tBodies[0].insertRow();
    this.#places.set(place, { version: entry.version, row });
    const { provenance } = entry;
    const who = element("span", "faint", `v${entry.version}`);
    who.title = `written by ${provenance.agent_id} in ${provenance.node_id} at ${entry.updated_at.replace("T", " ").slice(0, 19)} UTC`;
    const cells = [...(board === "blackboard" ? [element("code", "", entry.edge_id)] : []), element("code", "", entry.key), boardValue(entry.value), who];
    row.replaceChildren(...cells.map((cell) => element("td", "", cell)));
    if (known) {
      row.classList.remove("fresh");
      void row.offsetWidth; // so that the mark of a change shows again
    }
    row.classList.add("fresh");
    this.#count(board);
  }

  #count(board) {
    const count = at(board).tBodies[0].rows.length;
    at(`${board}-count`).textContent = count ? `(${count})` : "is empty";
    at(board).hidden = !count;
  }
}

/** Short ones as they are; of long ones a glimpse that can be folded open. */
function boardValue(value) {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  if (isMarker(value) || text.length <= 120) return valueNode(value);
  return element("details", "", element("summary", "", glimpse(value, 80)), valueNode(value));
}
