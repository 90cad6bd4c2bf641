// The panel in which a person accepts an agent's spec: all that the spec would allow, and one button.
//
// Owns that only the shown spec can be accepted. The request names the revision that the panel shows, and the
// server refuses it if the spec or the page has changed since. The button is disabled for a moment after the
// panel changes, so that a click meant for the previous content does not count.

import { exactText, PAUSE_MS } from "./canvas_consent.js";
import { byId, element } from "./values.js";

export class AcceptPanel {
  #shown = null; // the content of the panel as JSON
  #revision = 0; // the revision that the panel shows
  #weakened = {}; // the tools that claim less than before, as the panel shows them
  #pause = null;

  /** `send(revision, weakenedTools)` accepts the canvas; `reload` reads the canvas again after a refusal. */
  constructor(send, reload) {
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

  /** Show the panel for a canvas that needs acceptance. `isChanged`: its spec or its page has changed. */
  show({ accepted, spec, revision, weakenedTools = {}, descriptor: { ownerSessionKey } }, isChanged) {
    const isOpen = accepted === false;
    byId("accept").hidden = !isOpen;
    const content = isOpen ? JSON.stringify([spec, ownerSessionKey, weakenedTools]) : null;
    if (content === this.#shown && !isChanged) return; // only the state of the canvas has changed
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
    byId("accept-details").replaceChildren(...rowsOf(spec, ownerSessionKey));
    this.#pause = setTimeout(() => { byId("accept-now").disabled = false; }, PAUSE_MS);
  }
}

function rowsOf(spec, ownerSessionKey) {
  const actions = Object.entries(spec.actions ?? {});
  const recipient = ({ sessionKey }) => (
    sessionKey ? `to ${sessionKey}` : `to this canvas’s own session, ${ownerSessionKey}`
  );
  const effect = (name) => {
    const action = Object.hasOwn(spec.actions ?? {}, name) ? spec.actions[name] : {};
    const effects = { "tool.call": action.tool, "session.send": `a message ${recipient(action)}` };
    return effects[action.kind] ?? "a change of the state";
  };
  const messages = actions.filter(([, action]) => action.kind === "session.send");
  const jobs = (spec.refresh ?? []).filter((job) => job.enabled !== false);
  const describeJob = ({ action, everyMs }) => `${action} (${effect(action)}), every ${everyMs / 1000} s`;
  const rows = [
    ["Tools", spec.toolPolicy?.allow ?? [], "none"],
    ["Never asks before", actions.filter(([, action]) => action.confirm === "never").map(([name]) => name)],
    ["Sends messages", messages.map(([name, action]) => `${name}, ${recipient(action)}`), "none"],
    ["Runs on a timer", jobs.map(describeJob)],
    ["Its page may connect to", spec.toolPolicy?.connect ?? []],
  ];
  const nodes = rows.flatMap(([name, values, none = "nothing"]) => {
    const text = values.join(name === "Tools" ? ", " : "; ") || none;
    return [element("dt", "", name), element("dd", "", ...exactText(text))];
  });
  const all = element("pre", "", ...exactText(spec));
  return [...nodes, element("dt", "", "Complete spec"), element("dd", "", all)];
}
