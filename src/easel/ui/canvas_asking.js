// What waits for a person's consent: when it is put before them, how their answer gets to the server, and the lines of what waits.
//
// Owns that an answer counts once and is told truly: if the connection breaks before the server has answered, nobody here knows whether the
// action was begun, and nothing is said of it until the server has said how it stands.

import { Consent } from "./canvas_consent.js";
import { Refused } from "./canvas_gateway.js";
import { speak } from "./canvas_spoken.js";
import { at, button, element } from "./values.js";

const MOST_WAITING = 5; // lines
const SPEAK_MS = 600; // most of what is asked for is before the person's eyes by then, and waits in no line

export class Asking {
  #shown = new Set(); // confirmations that are before the person's eyes, or next in line for them
  #aside = new Set(); // asked for while the person wanted to be left in peace
  #unsure = new Set(); // actions of which nobody here knows whether they were begun
  #drawn = "";
  #spoken = new Set();
  #speaking = null;

  /** `on` has: titleOf(actionId), note(actionId, says), closed(from) as `Consent` tells it. */
  constructor(gateway, watch, canvasId, on) {
    Object.assign(this, { gateway, watch, canvasId, on });
    this.consent = new Consent({ closed: on.closed });
  }

  /** The canvas has changed: what was answered elsewhere is no question any more. */
  tell() {
    for (const one of [...this.#shown]) if (!this.watch.asked.has(one)) this.#withdraw(one);
    this.#draw();
  }

  #withdraw(confirmationId) {
    this.#shown.delete(confirmationId);
    this.consent.withdraw(confirmationId);
  }

  /**
   * Asks the person; the answer is what became of it, or that it still waits. `ask` asks the server how it stands with the press. Without a
   * `why` the person has asked to see it themselves.
   */
  async decide({ actionId, confirmationId, actor, askedAt }, { why, ask } = {}) {
    const waits = { status: "needs_confirmation", confirmationId };
    if (!this.watch.asked.has(confirmationId)) this.watch.asked.set(confirmationId, { actionId, confirmationId, actor, askedAt });
    const isAside = why !== undefined && !this.consent.isOpen;
    if (isAside) this.#aside.add(confirmationId);
    if (isAside || this.#shown.has(confirmationId)) {
      this.#draw();
      return waits;
    }
    this.#shown.add(confirmationId);
    this.#draw();
    let how = "later";
    try {
      const resolved = await this.#wholeCall(confirmationId);
      const about = { confirmationId, title: this.on.titleOf(actionId), resolved, why: why ?? whoAsked(actor, askedAt), from: why ? null : at("waiting") };
      if (resolved && this.#shown.has(confirmationId)) how = await this.consent.ask(about);
    } finally {
      this.#shown.delete(confirmationId);
      this.#draw();
    }
    if (how === "later") return waits;
    const isListed = async () => ((await this.#wholeCall(confirmationId)) ? waits : {}); // of what somebody else has pressed
    return this.#answered({ confirmationId, approve: how === "approve" }, actionId, ask ?? isListed);
  }

  /** All of the call, as it would run: an event is light, and says of what is long only that it is. Nothing if it was answered meanwhile. */
  async #wholeCall(confirmationId) {
    const { confirmations } = await this.gateway.insist("canvas.confirmations", { canvasId: this.canvasId });
    return confirmations.find((one) => one.confirmationId === confirmationId)?.resolved;
  }

  /** Told to the server; and told again where the connection broke, if it then says that it still waits. */
  async #answered(answer, actionId, ask) {
    for (;;) {
      try {
        return await this.gateway.call("canvas.confirm", answer);
      } catch (problem) {
        if (problem instanceof Refused) {
          if (!problem.details?.eventId) this.on.note(actionId, problem.message); // else an event tells of it
          throw problem;
        }
      }
      this.#unsure.add(actionId);
      this.#draw();
      const now = await ask().finally(() => {
        this.#unsure.delete(actionId);
        this.#draw();
      });
      if (now.status !== "needs_confirmation") return now;
    }
  }

  get #rows() { return [...this.watch.asked.values()].filter((one) => !this.#shown.has(idOf(one))); }

  /** Drawn anew only when something else waits: a button that moves is not pressed, and who is at one of them stays in these lines. */
  #draw() {
    const rows = this.#rows;
    const now = JSON.stringify([rows.map((one) => [idOf(one), this.on.titleOf(one.actionId), this.#aside.has(idOf(one))]), [...this.#unsure]]);
    if (now === this.#drawn) return;
    this.#drawn = now;
    const isHere = at("waiting").contains(document.activeElement);
    at("waiting").hidden = !rows.length && !this.#unsure.size;
    at("waiting").replaceChildren(
      ...[...this.#unsure].map((actionId) => element("p", "", element("strong", "", this.on.titleOf(actionId)), UNSURE)),
      ...rows.slice(0, MOST_WAITING).map((one) => this.#line(one)),
      ...(rows.length > MOST_WAITING ? [element("p", "", `… and ${rows.length - MOST_WAITING} more.`)] : []),
      ...(rows.length > 1 ? [element("p", "", button("plain", `Refuse all ${rows.length}`, () => this.#refuseAll(rows)))] : []),
    );
    if (isHere) this.on.closed(at("waiting"));
    clearTimeout(this.#speaking);
    this.#speaking = setTimeout(() => this.#speak(), SPEAK_MS);
  }

  #line(one) {
    const aside = this.#aside.has(idOf(one)) ? ASIDE : "";
    return element("p", "", element("strong", "", this.on.titleOf(one.actionId)), ` waits for your consent. ${aside}`, button("", "Look at it", () => this.decide(one).catch(() => {})));
  }

  #speak() {
    const lines = this.#rows.map((one) => [idOf(one), `${this.on.titleOf(one.actionId)} waits for your consent.`]);
    const now = new Map([...lines, ...[...this.#unsure].map((one) => [one, `${this.on.titleOf(one)}${UNSURE}`])]);
    for (const [one, says] of now) if (!this.#spoken.has(one)) speak(says);
    this.#spoken = new Set(now.keys());
  }

  /** A page that asks and asks fills the places of its canvas; then whoever looks at it has them back with one press. */
  async #refuseAll(rows) {
    for (const one of rows) {
      try {
        await this.gateway.call("canvas.confirm", { confirmationId: idOf(one), approve: false });
      } catch (problem) {
        this.on.note(one.actionId, problem.message);
      }
    }
  }
}

const idOf = ({ confirmationId, eventId }) => confirmationId ?? eventId;
const UNSURE = ": the connection broke before the server had answered. Whether it runs is shown when it is back.";
const ASIDE = "It was not put before you, for you had put another question away a moment before. ";

/** A page may ask without a press; the browser knows (and some do not tell), and the person should. */
export function whyAsked(isTheirs) {
  if (isTheirs === undefined) return "The page of this canvas asks for this, and it needs your consent.";
  return isTheirs ? "You pressed something here a moment ago, and the page asks for this. It needs your consent." : "The page of this canvas asks for this by itself: nothing was pressed here a moment ago.";
}

const whoAsked = (actor, askedAt) => `${actor?.name ? `${actor.name} asked for this` : "This was asked for"}${askedAt ? ` at ${new Date(askedAt).toLocaleTimeString()}` : ""}, and it needs your consent.`;
