// What has happened, for who does not see it: read out by a screen reader, and in nobody's sight.

import { at, element } from "./values.js";

const MOST = 5;

/** Said once, after what is being read now. */
export function speak(says) {
  at("spoken").append(element("p", "", says));
  while (at("spoken").childElementCount > MOST) at("spoken").firstChild.remove();
}
