// `window.gsvCanvas`, the API of a canvas's page.

import { runAction } from "./actions";
import { known, request, type StateListener, subscribe } from "./bridge";
import type { ActionStatus, RefreshFailure } from "./messages";

const api = {
  /** Return the latest state. The object is frozen: a page changes the state by actions and fields. */
  getState: (): unknown => known.state,
  /** Call a function now and after every change of the state. Returns a function that ends that. */
  subscribe(listener: StateListener): () => boolean {
    if (typeof listener !== "function") throw new TypeError("gsvCanvas.subscribe needs a function.");
    return subscribe(listener);
  },
  /**
   * Run an action of this canvas. The promise settles when the action has ended. If the action needs consent,
   * the shell asks the person first.
   */
  runAction: (actionId: unknown, input?: unknown): Promise<unknown> => runAction(actionId, input),
  /**
   * Stop a running action by the `eventId` of the event `gsv:status`: its tool ends and its result is not
   * saved. Until a person has accepted the canvas, a page can stop only actions that it has started. A
   * pending confirmation cannot be stopped.
   */
  cancelAction: (eventId: unknown): Promise<unknown> => request("cancel", { eventId: String(eventId) }),
};

export type CanvasApi = Readonly<typeof api>;

declare global {
  interface Window {
    readonly gsvCanvas: CanvasApi;
  }
  interface DocumentEventMap {
    readonly "gsv:status": CustomEvent<Readonly<Record<string, ActionStatus>>>;
    readonly "gsv:refresh": CustomEvent<Readonly<Record<string, RefreshFailure>>>;
  }
}

export function defineApi(): void {
  Object.defineProperty(window, "gsvCanvas", { value: Object.freeze(api), enumerable: true });
}
