// The panel in which a person accepts what an agent wrote: all that the spec would be allowed, and one button.
//
// Owns that exactly what is shown is accepted. The revision that goes out is the one at which the panel was filled: the server refuses it if
// the spec, or a page that an agent wrote, is another one since. After the panel was filled the button rests: a press that was meant for
// what stood there before does not count.

import { exact, PAUSE_MS } from "./canvas_consent.js";
import { at, element } from "./values.js";

export class Accept {
  #shown = null; // what is on the panel, as text
  #revision = 0; // at which it was put there
  #pause = null;

  /** `send(revision)` accepts. If that is refused, `look` reads the canvas as it is now. */
  constructor(send, look) {
    at("accept-now").onclick = async () => {
      at("accept-problem").textContent = "";
      try {
        await send(this.#revision);
      } catch (problem) {
        this.#shown = null; // what is there now is put before them anew
        at("accept-problem").textContent = problem.message;
        await look().catch(() => {}); // the next connection begins with a reading
      }
    };
  }

  /** The canvas as it was read. A change of its state alone is none of the panel's; `isOther` says that its spec or its page was written. */
  tell({ accepted, spec, revision, descriptor: { ownerSessionKey } }, isOther) {
    const isOpen = accepted === false;
    at("accept").hidden = !isOpen;
    const text = isOpen ? JSON.stringify([spec, ownerSessionKey]) : null;
    if (text === this.#shown && !isOther) return;
    this.#shown = text;
    this.#revision = revision;
    clearTimeout(this.#pause);
    at("accept-now").disabled = true;
    if (!isOpen) return;
    at("accept-says").replaceChildren(...rowsOf(spec, ownerSessionKey));
    this.#pause = setTimeout(() => { at("accept-now").disabled = false; }, PAUSE_MS);
  }
}

function rowsOf(spec, ownerSessionKey) {
  const actions = Object.entries(spec.actions ?? {});
  const to = ({ sessionKey }) => (sessionKey ? `to ${sessionKey}` : `to this canvas’s own session, ${ownerSessionKey}`);
  const does = (name) => {
    const one = Object.hasOwn(spec.actions ?? {}, name) ? spec.actions[name] : {};
    return { "tool.call": one.tool, "session.send": `a message ${to(one)}` }[one.kind] ?? "a change of the state";
  };
  const rows = [
    ["Tools", spec.toolPolicy?.allow ?? [], "none"],
    ["Never asks before", actions.filter(([, one]) => one.confirm === "never").map(([name]) => name)],
    ["Sends messages", actions.filter(([, one]) => one.kind === "session.send").map(([name, one]) => `${name}, ${to(one)}`), "none"],
    ["Runs by itself", (spec.refresh ?? []).filter((one) => one.enabled !== false).map((one) => `${one.action} (${does(one.action)}), every ${one.everyMs / 1000} s`)],
    ["Its page reaches", spec.toolPolicy?.connect ?? []],
  ];
  const said = rows.flatMap(([name, values, none = "nothing"]) => [element("dt", "", name), element("dd", "", ...exact(values.join(name === "Tools" ? ", " : "; ") || none))]);
  return [...said, element("dt", "", "All of it"), element("dd", "", element("pre", "", ...exact(spec)))];
}
