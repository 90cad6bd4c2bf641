// The list of sessions: searching, making, renaming and deleting them.

import { arrange, at, attempt, button, call, element, time } from "./values.js";

const TYPING_MS = 150;

export class SessionList {
  #asked = 0;
  #rows = [];
  #nodes = new Map(); // by session, its line: changed in place, for somebody may be about to press it
  #next = null;
  #isWhole = false; // whether the rows are all there are
  #timer = null;

  /** `on` has: choose(sessionId), changed(), gone(sessionId). */
  constructor(on) {
    this.on = on;
    this.chosen = null;
    at("search").oninput = () => {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.refresh(), TYPING_MS);
    };
    at("new").onclick = () => attempt(at("sessions-problem"), () => this.#make());
    at("more-sessions").onclick = () => attempt(at("sessions-problem"), () => this.#load(this.#next));
    at("rename").onclick = () => this.#editTitle(true);
    at("title-form").onsubmit = (event) => {
      event.preventDefault();
      attempt(at("chat-problem"), () => this.#rename(at("new-title").value));
    };
    at("new-title").onkeydown = (event) => { if (event.key === "Escape") this.#endTitle(); };
    at("keep-title").onclick = () => this.#endTitle();
    at("delete").onclick = () => this.#askToDelete(true);
    at("keep").onclick = () => this.#keep();
    at("delete-form").onkeydown = (event) => { if (event.key === "Escape") this.#keep(); };
    at("delete-for-good").onclick = () => attempt(at("chat-problem"), () => this.#delete());
  }

  refresh() { return attempt(at("sessions-problem"), () => this.#load(null)); }

  async #load(before) {
    const asked = (this.#asked += 1);
    const search = at("search").value.trim();
    const query = new URLSearchParams({ limit: "30", ...(search && { search }), ...(before && { before }) });
    const { sessions, next = null } = await call("GET", `/api/sessions?${query}`);
    if (asked !== this.#asked) return; // a newer answer is on its way
    this.#rows = before ? [...this.#rows, ...sessions] : sessions;
    this.#next = next;
    this.#isWhole = !search && next === null;
    at("more-sessions").hidden = next === null;
    at("no-sessions").hidden = this.#rows.length > 0;
    at("no-sessions").textContent = search ? "No session has this in its title or id." : "None yet. The first message makes one.";
    this.#show();
  }

  choose(sessionId) {
    this.chosen = sessionId;
    this.#editTitle(false);
    this.#askToDelete(false);
    this.#show();
  }

  /** Whether it is certain that there is no such session: then nobody needs to be asked for what was said in it. */
  lacks(sessionId) { return this.#isWhole && !this.#rows.some((one) => one.session_id === sessionId); }

  get newest() { return this.#rows[0]?.session_id ?? null; }

  #show() {
    this.#nodes = new Map(this.#rows.map((one) => [one.session_id, this.#line(one)]));
    arrange(at("session-list"), [...this.#nodes.values()]);
    const known = this.#rows.find((one) => one.session_id === this.chosen);
    if (known) this.#name(titleOf(known), true);
    else this.#lookUp(this.chosen);
  }

  #line(one) {
    const { session_id: id } = one;
    const line = this.#nodes.get(id) ?? element("li", "", Object.assign(button("", "", () => this.on.choose(id)), { title: id }));
    const row = line.firstChild;
    row.setAttribute("aria-current", String(id === this.chosen));
    row.replaceChildren(element("span", "what", titleOf(one)), element("span", "", time(one.last_message_at), one.active_run_id ? element("span", "status running", " working") : null));
    return line;
  }

  #name(title, isThere) {
    at("title").textContent = title;
    document.title = `${title} · Easel`;
    at("session-verbs").hidden = !isThere;
  }

  /** A session that is not in the list as it is now: further down, not searched for, or not there yet. */
  async #lookUp(sessionId) {
    if (!sessionId) return;
    const found = this.lacks(sessionId) ? null : await call("GET", `/api/sessions/${encodeURIComponent(sessionId)}`).catch(() => null);
    if (sessionId === this.chosen) this.#name(found ? titleOf(found) : sessionId, found !== null);
  }

  async #make() {
    at("search").value = "";
    const unused = this.#rows.find((one) => one.last_seq === 0 && one.title === null); // one empty session is enough
    const { session_id: made } = unused ?? (await call("POST", "/api/sessions", {}));
    await this.#changed();
    this.on.choose(made);
    at("message").focus();
  }

  /** A session that has no name yet is called after the example that it begins with: the script's own text would say little. */
  async nameFirst(title) {
    const known = this.#rows.find((one) => one.session_id === this.chosen);
    if (known?.title) return;
    const naming = known ? call("PATCH", this.#path(), { title }) : call("POST", "/api/sessions", { session_id: this.chosen, title });
    await naming.catch(() => null); // then the server makes one of the message
  }

  async #rename(title) {
    await call("PATCH", this.#path(), { title });
    this.#endTitle();
    await this.#changed();
  }

  async #delete() {
    const gone = this.chosen;
    await call("DELETE", this.#path());
    this.#askToDelete(false);
    await this.#changed();
    this.on.gone(gone);
    at("message").focus();
  }

  #path() { return `/api/sessions/${encodeURIComponent(this.chosen)}`; }

  async #changed() {
    await this.#load(null);
    this.on.changed();
  }

  #editTitle(isOn) {
    at("title-form").hidden = !isOn;
    at("title-line").hidden = isOn;
    if (!isOn) return;
    at("new-title").value = at("title").textContent;
    at("new-title").select();
  }

  // Who has finished goes on where they were.

  #endTitle() {
    this.#editTitle(false);
    at("rename").focus();
  }

  #keep() {
    this.#askToDelete(false);
    at("delete").focus();
  }

  #askToDelete(isOn) {
    at("delete-form").hidden = !isOn;
    at("delete").hidden = isOn;
    if (isOn) at("keep").focus();
  }
}

const titleOf = (session) => session.title ?? "New session";
