// @ts-check
// The list of sessions: search, create, rename and delete.

import { arrange, attempt, button, byId, element, request, time } from "./values.js";

const TYPING_MS = 150; // wait after the last key before the search starts

export class SessionList {
  #requestCount = 0;
  #rows = [];
  #nodes = new Map(); // by session id; changed in place, because a row may be about to be clicked
  #next = null;
  #isComplete = false; // whether the rows are all sessions
  #timer = null;

  /** `on` has: choose(sessionId), changed(), deleted(sessionId). */
  constructor(on) {
    this.on = on;
    this.chosen = null;
    byId("search").oninput = () => {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.refresh(), TYPING_MS);
    };
    const onEscape = (work) => (event) => { if (event.key === "Escape") work(); };
    byId("new").onclick = () => attempt(byId("sessions-problem"), () => this.#create());
    byId("more-sessions").onclick = () => attempt(byId("sessions-problem"), () => this.#load(this.#next));
    byId("rename").onclick = () => this.#editTitle(true);
    byId("title-form").onsubmit = (event) => {
      event.preventDefault();
      attempt(byId("chat-problem"), () => this.#rename(byId("new-title").value));
    };
    byId("new-title").onkeydown = onEscape(() => this.#endEditTitle());
    byId("keep-title").onclick = () => this.#endEditTitle();
    byId("delete").onclick = () => this.#askToDelete(true);
    byId("keep").onclick = () => this.#endDelete();
    byId("delete-form").onkeydown = onEscape(() => this.#endDelete());
    byId("delete-for-good").onclick = () => attempt(byId("chat-problem"), () => this.#delete());
  }

  refresh() { return attempt(byId("sessions-problem"), () => this.#load(null)); }

  async #load(before) {
    const number = (this.#requestCount += 1);
    const search = byId("search").value.trim();
    const query = new URLSearchParams({ limit: "30", ...(search && { search }), ...(before && { before }) });
    const { sessions, next = null } = await request("GET", `/api/sessions?${query}`);
    if (number !== this.#requestCount) return; // a newer request is pending
    this.#rows = before ? [...this.#rows, ...sessions] : sessions;
    this.#next = next;
    this.#isComplete = !search && next === null;
    byId("more-sessions").hidden = next === null;
    byId("no-sessions").hidden = this.#rows.length > 0;
    byId("no-sessions").textContent = search
      ? "No session has this in its title or id."
      : "None yet. The first message creates one.";
    this.#draw();
  }

  choose(sessionId) {
    this.chosen = sessionId;
    this.#editTitle(false);
    this.#askToDelete(false);
    this.#draw();
  }

  /** Return whether the session is known not to exist, so that its messages need not be requested. */
  lacks(sessionId) { return this.#isComplete && !this.#find(sessionId); }

  #find(sessionId) { return this.#rows.find((row) => row.session_id === sessionId); }

  get newest() { return this.#rows[0]?.session_id ?? null; }

  #draw() {
    this.#nodes = new Map(this.#rows.map((row) => [row.session_id, this.#drawRow(row)]));
    arrange(byId("session-list"), [...this.#nodes.values()]);
    const known = this.#find(this.chosen);
    if (known) this.#showTitle(titleOf(known), true);
    else this.#loadTitle(this.chosen);
  }

  #drawRow(row) {
    const { session_id: id } = row;
    const create = () => (
      element("li", "", Object.assign(button("", "", () => this.on.choose(id)), { title: id }))
    );
    const line = this.#nodes.get(id) ?? create();
    const node = line.firstChild;
    const working = row.active_run_id ? element("span", "status running", " working") : null;
    node.setAttribute("aria-current", String(id === this.chosen));
    const details = element("span", "", time(row.last_message_at), working);
    node.replaceChildren(element("span", "what", titleOf(row)), details);
    return line;
  }

  #showTitle(title, exists) {
    byId("title").textContent = title;
    document.title = `${title} · Easel`;
    byId("session-verbs").hidden = !exists;
  }

  /**
   * Load the title of a session that is not in the list: on a later page, not found by the search, or new.
   */
  async #loadTitle(sessionId) {
    if (!sessionId) return;
    const path = `/api/sessions/${encodeURIComponent(sessionId)}`;
    const found = this.lacks(sessionId) ? null : await request("GET", path).catch(() => null);
    if (sessionId === this.chosen) this.#showTitle(found ? titleOf(found) : sessionId, found !== null);
  }

  async #create() {
    byId("search").value = "";
    // Choose an existing empty session instead of creating another.
    const unused = this.#rows.find((row) => row.last_seq === 0 && row.title === null);
    const { session_id: sessionId } = unused ?? (await request("POST", "/api/sessions", {}));
    await this.#reload();
    this.on.choose(sessionId);
    byId("message").focus();
  }

  /** Give an untitled session the title of the example that it starts with. */
  async nameFirst(title) {
    const known = this.#find(this.chosen);
    if (known?.title) return;
    const response = known
      ? request("PATCH", this.#path(), { title })
      : request("POST", "/api/sessions", { session_id: this.chosen, title });
    await response.catch(() => null); // after a failure the server makes a title from the message
  }

  async #rename(title) {
    await request("PATCH", this.#path(), { title });
    this.#endEditTitle();
    await this.#reload();
  }

  async #delete() {
    const sessionId = this.chosen;
    await request("DELETE", this.#path());
    this.#askToDelete(false);
    await this.#reload();
    this.on.deleted(sessionId);
    byId("message").focus();
  }

  #path() { return `/api/sessions/${encodeURIComponent(this.chosen)}`; }

  async #reload() {
    await this.#load(null);
    this.on.changed();
  }

  #editTitle(isOn) {
    byId("title-form").hidden = !isOn;
    byId("title-line").hidden = isOn;
    if (!isOn) return;
    byId("new-title").value = byId("title").textContent;
    byId("new-title").select();
  }

  // Closing a form returns the focus to the button that opened it.

  #endEditTitle() {
    this.#editTitle(false);
    byId("rename").focus();
  }

  #endDelete() {
    this.#askToDelete(false);
    byId("delete").focus();
  }

  #askToDelete(isOn) {
    byId("delete-form").hidden = !isOn;
    byId("delete").hidden = isOn;
    if (isOn) byId("keep").focus();
  }
}

const titleOf = (session) => session.title ?? "New session";
