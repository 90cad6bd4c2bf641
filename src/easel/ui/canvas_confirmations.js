// @ts-check
// Confirmations: when the dialog opens, how the decision reaches the server, and the list of pending
// confirmations.
//
// Owns that a decision counts once. If the connection breaks before the server responds, the page does not
// know whether the action started. It shows this until the server reports the status of the action.

import { announce } from "./canvas_announce.js";
import { ConsentDialog } from "./canvas_consent.js";
import { RequestRefused } from "./errors.js";
import { button, byId, element } from "./values.js";

const MAX_LINES = 5;
const ANNOUNCE_MS = 600; // by then most confirmations are in the dialog and need no announcement

export class Confirmations {
  #inDialog = new Set(); // confirmations that the dialog shows or will show next
  #postponed = new Set(); // confirmations whose dialog did not open because one had just been closed
  #uncertain = new Set(); // actions that may have started before the connection broke
  #drawn = "";
  #announced = new Set();
  #announceTimer = null;

  /** `on` has: titleOf(actionId), note(actionId, message), closed(focusBefore), canvas(). */
  constructor(gateway, watch, canvasId, on) {
    this.gateway = gateway;
    this.watch = watch;
    this.canvasId = canvasId;
    this.on = on;
    this.dialog = new ConsentDialog({ closed: on.closed });
  }

  /** Show the pending confirmations, and close the dialog of one that was decided elsewhere. */
  update() {
    for (const id of [...this.#inDialog]) if (!this.watch.confirmations.has(id)) this.#withdraw(id);
    this.#draw();
  }

  #withdraw(confirmationId) {
    this.#inDialog.delete(confirmationId);
    this.dialog.withdraw(confirmationId);
  }

  /**
   * Ask the user. Returns the outcome, or `needs_confirmation` while undecided. `getStatus` requests the
   * status of the action. `why` describes the page's request; without it the user opened the dialog.
   * @param {any} confirmation
   * @param {{why?: any, getStatus?: any}} [request]
   */
  async decide({ actionId, confirmationId, actor, askedAt }, { why, getStatus } = {}) {
    const pending = { status: "needs_confirmation", confirmationId };
    const { confirmations } = this.watch;
    if (!confirmations.has(confirmationId)) {
      confirmations.set(confirmationId, { actionId, confirmationId, actor, askedAt });
    }
    const isPostponed = why !== undefined && !this.dialog.isAvailable;
    if (isPostponed) this.#postponed.add(confirmationId);
    if (isPostponed || this.#inDialog.has(confirmationId)) {
      this.#draw();
      return pending;
    }
    this.#inDialog.add(confirmationId);
    this.#draw();
    let decision = "later";
    try {
      const item = await this.#read(confirmationId);
      const question = {
        confirmationId,
        title: this.on.titleOf(actionId),
        about: {
          ...this.on.canvas(),
          resolved: item?.resolved,
          runsOn: item?.runsOn,
          isDestructive: item?.destructive,
          mayApprove: item?.mayApprove,
        },
        why: `${why ?? describeRequest(actor, askedAt)}${item?.mayApprove === false ? OF_ANOTHER : ""}`,
        from: why ? null : byId("waiting"),
      };
      // Another dialog may have been closed while this one was read.
      if (why !== undefined && this.dialog.isResting) this.#postponed.add(confirmationId);
      else if (item?.resolved && this.#inDialog.has(confirmationId)) {
        decision = await this.dialog.ask(question);
      }
    } finally {
      this.#inDialog.delete(confirmationId);
      this.#draw();
    }
    if (decision === "later") return pending;
    // The default of `getStatus`, for an action that another page has started.
    const isPending = async () => ((await this.#read(confirmationId)) ? pending : {});
    return this.#send({ confirmationId, approve: decision === "approve" }, actionId, getStatus ?? isPending);
  }

  /**
   * Return a confirmation with its complete call, or undefined if it was decided. The event of the
   * confirmation is not enough: it has only a digest of the call.
   */
  async #read(confirmationId) {
    const params = { canvasId: this.canvasId };
    const { confirmations } = await this.gateway.callWithRetry("canvas.confirmations", params);
    return confirmations.find((item) => item.confirmationId === confirmationId);
  }

  /** Send a decision; after a broken connection send it again if the confirmation is still pending. */
  async #send(decision, actionId, getStatus) {
    for (;;) {
      try {
        return await this.gateway.call("canvas.confirm", decision);
      } catch (problem) {
        if (problem instanceof RequestRefused) {
          if (!problem.details?.eventId) this.on.note(actionId, problem.message); // else an event reports it
          throw problem;
        }
      }
      this.#uncertain.add(actionId);
      this.#draw();
      const outcome = await getStatus().finally(() => {
        this.#uncertain.delete(actionId);
        this.#draw();
      });
      if (outcome.status !== "needs_confirmation") return outcome;
    }
  }

  get #rows() {
    return [...this.watch.confirmations.values()].filter((item) => !this.#inDialog.has(idOf(item)));
  }

  /**
   * Draw the list if it has changed: a button must not move under the pointer, and the focus stays in the
   * list.
   */
  #draw() {
    const rows = this.#rows;
    const keyOf = (item) => [idOf(item), this.on.titleOf(item.actionId), this.#postponed.has(idOf(item))];
    const content = JSON.stringify([rows.map(keyOf), [...this.#uncertain]]);
    if (content === this.#drawn) return;
    this.#drawn = content;
    const list = byId("waiting");
    const hasFocus = list.contains(document.activeElement);
    const refuseAll = button("plain", `Refuse all ${rows.length}`, () => this.#refuseAll(rows));
    list.hidden = !rows.length && !this.#uncertain.size;
    list.replaceChildren(
      ...[...this.#uncertain].map((actionId) => element("p", "", this.#title(actionId), UNCERTAIN)),
      ...rows.slice(0, MAX_LINES).map((item) => this.#line(item)),
      ...(rows.length > MAX_LINES ? [element("p", "", `… and ${rows.length - MAX_LINES} more.`)] : []),
      ...(rows.length > 1 ? [element("p", "", refuseAll)] : []),
    );
    if (hasFocus) this.on.closed(list);
    clearTimeout(this.#announceTimer);
    this.#announceTimer = setTimeout(() => this.#announce(), ANNOUNCE_MS);
  }

  #line(item) {
    const note = this.#postponed.has(idOf(item)) ? POSTPONED : "";
    const review = button("", "Review", () => this.decide(item).catch(() => {}));
    return element("p", "", this.#title(item.actionId), ` waits for your consent. ${note}`, review);
  }

  #title(actionId) { return element("strong", "", this.on.titleOf(actionId)); }

  #announce() {
    const describe = (item) => `${this.on.titleOf(item.actionId)} waits for your consent.`;
    const pending = this.#rows.map((item) => [idOf(item), describe(item)]);
    const uncertain = [...this.#uncertain].map((id) => [id, `${this.on.titleOf(id)}${UNCERTAIN}`]);
    const lines = new Map(/** @type {[any, string][]} */ ([...pending, ...uncertain]));
    for (const [id, text] of lines) if (!this.#announced.has(id)) announce(text);
    this.#announced = new Set(lines.keys());
  }

  /** Refuse all pending confirmations: a page that requests many would otherwise block its canvas. */
  async #refuseAll(rows) {
    for (const item of rows) {
      try {
        await this.gateway.call("canvas.confirm", { confirmationId: idOf(item), approve: false });
      } catch (problem) {
        this.on.note(item.actionId, problem.message);
      }
    }
  }
}

const idOf = ({ confirmationId, eventId }) => confirmationId ?? eventId;
const OF_ANOTHER = " Another person must approve it; until then you can refuse it, which withdraws it.";
const UNCERTAIN = ": the connection broke before the server responded. Its status is shown when it is back.";
const POSTPONED = "Its dialog did not open because you had just closed another one. ";

/**
 * Describe whether the user clicked or typed before the page requested the action. `isActive` is undefined in
 * browsers that do not report it.
 */
export function describeTrigger(isActive) {
  if (isActive === undefined) return "The page of this canvas requests this, and it needs your consent.";
  if (isActive) {
    return "You clicked or typed here a moment ago, and the page requests this. It needs your consent.";
  }
  return "The page of this canvas requests this without a click or key press of yours.";
}

function describeRequest(actor, askedAt) {
  const subject = actor?.name ? `${actor.name} requested this` : "This was requested";
  const time = askedAt ? ` at ${new Date(askedAt).toLocaleTimeString()}` : "";
  return `${subject}${time}, and it needs your consent.`;
}
