// @ts-check
// Announcements for screen readers, in an element that is not visible.

import { byId, element } from "./values.js";

const MAX_ANNOUNCEMENTS = 5;

/** Have a screen reader read the text once, after its current text. */
export function announce(text) {
  const log = byId("announcements");
  log.append(element("p", "", text));
  while (log.childElementCount > MAX_ANNOUNCEMENTS) log.firstChild.remove();
}
