// @ts-check
// The panel in which a person accepts an agent's spec: all that the spec would allow, and one button.
//
// Owns that only the shown spec can be accepted. The request names the revision that the panel shows, and the
// server refuses it if the spec or the page has changed since. The button is disabled for a moment after the
// panel changes, so that a click meant for the previous content does not count, and until every action that
// will not ask was visible to its end (RS-64).

import { authorRows, exactText, PAUSE_MS, toRows } from "./canvas_consent.js";
import { ACTION_MEMBERS, memberRows, POLICY_MEMBERS } from "./canvas_members.js";
import { SeenValues } from "./canvas_seen.js";
import { byId, element } from "./values.js";

export class AcceptPanel {
  #shown = null; // the content of the panel as JSON
  #request = {}; // what the panel shows; a canvas that was created again has other content at a revision
  #pause = null;
  #isPauseOver = false;
  #seen = new SeenValues(byId("accept"), byId("accept-bar"), () => this.#update());

  /**
   * `send(request)` accepts the canvas; `reload` reads the canvas again after a refusal;
   * `readTools` returns the definitions of all tools, `readLastAccepted` the last version that was accepted.
   */
  constructor(send, reload, readTools, readLastAccepted) {
    this.readTools = readTools;
    this.readLastAccepted = readLastAccepted;
    byId("accept-now").onclick = async () => {
      byId("accept-problem").textContent = "";
      try {
        await send(this.#request);
      } catch (problem) {
        this.#shown = null; // so that the panel is drawn again
        byId("accept-problem").textContent = problem.message;
        await reload().catch(() => {}); // the next connection reads the canvas
      }
    };
  }

  /** Show the panel for a canvas that needs acceptance; draw it again when its spec or page has changed. */
  show({ accepted, spec, specRevision, revision, weakenedTools = {}, descriptor, ...authors }) {
    const { ownerSessionKey, createdAt } = descriptor;
    const isOpen = accepted === false;
    byId("accept").hidden = !isOpen;
    const shown = [spec, specRevision, ownerSessionKey, createdAt, weakenedTools];
    const content = isOpen ? JSON.stringify(shown) : null;
    if (content === this.#shown) return; // only the state of the canvas has changed
    this.#shown = content;
    this.#request = { revision, weakenedTools, createdAt };
    clearTimeout(this.#pause);
    byId("accept-now").disabled = true;
    if (!isOpen) return;
    const reasons = Object.entries(weakenedTools).map(([tool, reason]) => `${tool} ${reason}.`);
    byId("accept-intro").hidden = reasons.length > 0;
    byId("accept-weakened").hidden = reasons.length === 0;
    byId("accept-reasons").replaceChildren(...exactText(reasons.join(" ")));
    byId("accept-spec").replaceChildren(...exactText(spec));
    this.#draw(content, spec, ownerSessionKey, authors);
  }

  /** Draw the rows when the tools are known: a read-only tool does not ask. */
  async #draw(content, spec, ownerSessionKey, authors) {
    this.#isPauseOver = false;
    this.#seen.stop();
    byId("accept-details").replaceChildren();
    byId("accept").scrollTop = 0;
    const [definitions, last] = await Promise.all([this.readTools(), this.readLastAccepted()]);
    if (this.#shown !== content) return; // the canvas has changed since
    const tools = new Map(definitions.map((tool) => [tool.name, tool]));
    byId("accept-details").replaceChildren(
      ...toRows([...authorRows(authors), ...folderRows(ownerSessionKey, last?.ownerSessionKey)]),
      ...toRows(memberRows(POLICY_MEMBERS, { allow: [], connect: [], ...spec.toolPolicy })),
      ...actionRows(spec, ownerSessionKey, tools),
      ...toRows(timerRows(spec)),
    );
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

/** Return the rows of the session in whose folder the actions work, and of the one before if it changed. */
function folderRows(session, before = session) {
  const change = before === session ? [] : [["Changed since it was last accepted, from", before, "danger"]];
  return [["Works in the folder of", session], ...change];
}

/** Return a row for each action that will not ask, with a row for each of its members. */
function actionRows(spec, ownerSessionKey, tools) {
  const silent = Object.entries(spec.actions ?? {}).filter(([, action]) => !asks(action, tools));
  return silent.flatMap(([name, action]) => {
    const own = { sessionKey: `this canvas’s own session, ${ownerSessionKey}` };
    const members = { ...(action.kind === "session.send" ? own : {}), ...action };
    const note = isHarmless(action, tools) ? "; it only reads" : "";
    const heading = exactText(`${action.title ?? name} will not ask${note}`);
    const rows = toRows(memberRows(ACTION_MEMBERS, members));
    return [element("dt", "", ...heading), element("dd", "", element("dl", "", ...rows))];
  });
}

function timerRows(spec) {
  const jobs = (spec.refresh ?? []).filter((job) => job.enabled !== false);
  return jobs.map(({ action, everyMs, onlyWatched }) => (
    ["Runs on a timer", `${action}, every ${everyMs / 1000} s${onlyWatched ? ", while it is open" : ""}`]
  ));
}

/** Return whether an action of an accepted spec asks a person. The server may ask more often. RS-13 */
function asks({ kind, tool, args, confirm = "auto", approval }, tools) {
  if (approval === "another") return true; // RS-77
  if (confirm !== "auto") return confirm === "always";
  return kind === "tool.call" && !isHarmless({ kind, tool, args }, tools);
}

function isHarmless({ kind, tool, args }, tools) {
  if (tool === "local__Fetch") return ["GET", "HEAD"].includes(args?.method); // RS-74
  const { readOnlyHint, destructiveHint } = tools.get(tool)?.annotations ?? {};
  return kind === "tool.call" && readOnlyHint === true && !destructiveHint;
}
