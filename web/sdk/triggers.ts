// `data-gsv-action`, `data-gsv-control`: elements that run an action, and how they show its status.

import { PREFIX } from "./attributes";
import { known } from "./bridge";
import { attributeOf, closestTo, isMatch } from "./dom";

const NATIVE = "button, a[href], input, select, textarea, form, summary, label, option";
const TRIGGER = "[data-gsv-action], [data-gsv-control]";
const NOT_CLICKED = "select, textarea, input:not([type=button], [type=submit], [type=reset], [type=image])";

export const busy = new WeakSet<Element>(); // elements whose action runs: a second click starts no second run

export const isNative = (element: Element): boolean => isMatch(element, NATIVE);
export const isTrigger = (element: Element): boolean => isMatch(element, TRIGGER);
export const runsOnChange = (element: Element): boolean => isMatch(element, NOT_CLICKED);
export const triggerOf = ({ target }: Event): Element | null =>
  target instanceof Element ? closestTo(target, TRIGGER) : null;

/** Return the id of the action that an element runs; null for none, and for a control without a binding. */
export function actionOf(element: Element): string | null {
  const action = attributeOf(element, `${PREFIX}action`);
  if (action !== null) return action;
  const control = attributeOf(element, `${PREFIX}control`);
  const bindings = known.info?.bindings ?? {};
  return control !== null && Object.hasOwn(bindings, control) ? (bindings[control] ?? null) : null;
}

/** Show the status of an element's action. In a list an element shows only the action that it started. */
export function showAction(element: Element, isOnPage: boolean): void {
  const actionId = actionOf(element);
  if (actionId === null) return;
  const isShared = isOnPage && Object.hasOwn(known.statuses, actionId);
  const status = isShared ? known.statuses[actionId] : undefined;
  const isBusy = busy.has(element) || status?.status === "running";
  if (isBusy !== (element.getAttribute("aria-busy") === "true")) {
    if (isBusy) element.setAttribute("aria-busy", "true");
    else element.removeAttribute("aria-busy");
  }
  if (status && element.getAttribute(`${PREFIX}status`) !== status.status) {
    element.setAttribute(`${PREFIX}status`, status.status);
  }
  if (!isNative(element) && !element.hasAttribute("tabindex")) {
    element.setAttribute("tabindex", "0");
    if (!element.hasAttribute("role")) element.setAttribute("role", "button");
  }
}
