// The panel in which a person accepts an agent's spec: all that the spec would allow, and one button.
//
// Owns that only the shown spec can be accepted. The request names the revision that the panel shows, and the
// server refuses it if the spec or the page has changed since. The button is disabled for a moment after the
// panel changes, so that a click meant for the previous content does not count, and until every action that
// will not ask was visible to its end (RS-64).

import { describeAuthor, exactText, PAUSE_MS, toRows } from "./canvas_consent.js";
import { SeenValues } from "./canvas_seen.js";
import { byId } from "./values.js";

export class AcceptPanel {
  #shown = null; // the content of the panel as JSON
  #revision = 0; // the revision that the panel shows
  #weakened = {}; // the tools that claim less than before, as the panel shows them
  #pause = null;
  #isPauseOver = false;
  #seen = new SeenValues(byId("accept"), byId("accept-bar"), () => this.#update());

  /**
   * `send(revision, weakenedTools)` accepts the canvas; `reload` reads the canvas again after a refusal;
   * `readTools` returns the definitions of all tools.
   */
  constructor(send, reload, readTools) {
    this.readTools = readTools;
    byId("accept-now").onclick = async () => {
      byId("accept-problem").textContent = "";
      try {
        await send(this.#revision, this.#weakened);
      } catch (problem) {
        this.#shown = null; // so that the panel is drawn again
        byId("accept-problem").textContent = problem.message;
        await reload().catch(() => {}); // the next connection reads the canvas
      }
    };
  }

  /** Show the panel for a canvas that needs acceptance; draw it again when its spec or page has changed. */
  show({ accepted, spec, specRevision, revision, writtenBy, weakenedTools = {}, descriptor }) {
    const { ownerSessionKey } = descriptor;
    const isOpen = accepted === false;
    byId("accept").hidden = !isOpen;
    const content = isOpen ? JSON.stringify([spec, specRevision, ownerSessionKey, weakenedTools]) : null;
    if (content === this.#shown) return; // only the state of the canvas has changed
    this.#shown = content;
    this.#revision = revision;
    this.#weakened = weakenedTools;
    clearTimeout(this.#pause);
    byId("accept-now").disabled = true;
    if (!isOpen) return;
    const reasons = Object.entries(weakenedTools).map(([tool, reason]) => `${tool} ${reason}.`);
    byId("accept-intro").hidden = reasons.length > 0;
    byId("accept-weakened").hidden = reasons.length === 0;
    byId("accept-reasons").replaceChildren(...exactText(reasons.join(" ")));
    byId("accept-spec").replaceChildren(...exactText(spec));
    this.#draw(content, spec, ownerSessionKey, writtenBy);
  }

  /** Draw the rows when the tools are known: a read-only tool does not ask. */
  async #draw(content, spec, ownerSessionKey, writtenBy) {
    this.#isPauseOver = false;
    this.#seen.stop();
    byId("accept-details").replaceChildren();
    byId("accept").scrollTop = 0;
    const tools = new Map((await this.readTools()).map((tool) => [tool.name, tool]));
    if (this.#shown !== content) return; // the canvas has changed since
    const rows = [["Written by", describeAuthor(writtenBy)], ...rowsOf(spec, ownerSessionKey, tools)];
    byId("accept-details").replaceChildren(...toRows(rows));
    this.#seen.watch(byId("accept-details").querySelectorAll("dd"));
    this.#pause = setTimeout(() => {
      this.#isPauseOver = true;
      this.#update();
    }, PAUSE_MS);
  }

  #update() {
    byId("accept-more").hidden = this.#seen.isComplete;
    byId("accept-now").disabled = !(this.#isPauseOver && this.#seen.isComplete);
  }
}

/** Return the rows of the panel: what the spec allows, and each action that will not ask. */
function rowsOf(spec, ownerSessionKey, tools) {
  const actions = Object.entries(spec.actions ?? {});
  const jobs = (spec.refresh ?? []).filter((job) => job.enabled !== false);
  const list = (values, none) => values.join(", ") || none;
  return [
    ["Tools", list(spec.toolPolicy?.allow ?? [], "none")],
    ["Its page may connect to", list(spec.toolPolicy?.connect ?? [], "nothing")],
    ...(spec.toolPolicy?.hosts ? [["Its actions may fetch from", list(spec.toolPolicy.hosts)]] : []),
    ...(spec.toolPolicy?.secrets?.length
      ? [["Its actions may send your secrets to its tools", spec.toolPolicy.secrets.join(", ")]] : []),
    ...actions.filter(([, action]) => !asks(action, tools)).map(([name, action]) => (
      [`${action.title ?? name} will not ask${isHarmless(action, tools) ? "; it only reads" : ""}`,
        describeAction(action, ownerSessionKey)]
    )),
    ...jobs.map(({ action, everyMs }) => ["Runs on a timer", `${action}, every ${everyMs / 1000} s`]),
  ];
}

/** Return whether an action of an accepted spec asks a person. The server may ask more often. RS-13 */
function asks({ kind, tool, args, confirm = "auto" }, tools) {
  if (confirm !== "auto") return confirm === "always";
  return kind === "tool.call" && !isHarmless({ kind, tool, args }, tools);
}

function isHarmless({ kind, tool, args }, tools) {
  if (tool === "local__Fetch") return ["GET", "HEAD"].includes(args?.method); // RS-74
  const { readOnlyHint, destructiveHint } = tools.get(tool)?.annotations ?? {};
  return kind === "tool.call" && readOnlyHint === true && !destructiveHint;
}

/** Return what an action does, with its command, message or patch as the spec has it. */
function describeAction({ kind, tool, args, message, sessionKey, patch, secrets }, ownerSessionKey) {
  if (kind === "session.send") {
    return `Sends a message to ${sessionKey ?? `this canvas’s own session, ${ownerSessionKey}`}:\n${message}`;
  }
  if (kind === "state.patch") return `Changes the state:\n${JSON.stringify(patch, null, 2)}`;
  const { command, ...rest } = args ?? {};
  const others = Object.keys(rest).length ? `\n${JSON.stringify(rest, null, 2)}` : "";
  const variables = secrets?.length ? `\nwith the secrets ${secrets.join(", ")} as variables` : "";
  return `${tool}${typeof command === "string" ? `\n${command}` : ""}${others}${variables}`;
}
