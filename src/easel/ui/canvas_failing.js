// The lines that say which jobs of a canvas fail: what runs by itself fails before nobody's eyes, and what it last brought still stands on the page.
//
// A line stays until its job works again, or is no job any more. Always as text.

import { at, element, shorten } from "./values.js";

const LOOK_MS = 1_000; // between two counts of how long it still takes
const MOST = 5; // lines
const LONGEST_REASON = 300; // characters

export class FailingJobs {
  #shown = "";
  #waits = []; // [where it is counted, when it is tried again]
  #timer = null;

  /** The jobs that fail, and what their actions are called. */
  tell(jobs, titleOf) {
    const rows = jobs.map((one) => ({ ...one, title: titleOf(one.actionId) }));
    const now = JSON.stringify(rows);
    if (now === this.#shown) return;
    this.#shown = now;
    this.#waits = rows.slice(0, MOST).map(({ nextAt }) => [element("span", "faint"), nextAt]);
    for (const [wait] of this.#waits) wait.setAttribute("aria-live", "off"); // nobody wants the seconds read out
    at("failing").hidden = !rows.length;
    at("failing").replaceChildren(
      ...this.#waits.map(([wait], place) => element("p", "", `“${rows[place].title}” fails by itself: `, element("span", "reason", reasonOf(rows[place])), " ", wait)),
      rows.length > MOST ? `… and ${rows.length - MOST} more.` : "",
    );
    clearInterval(this.#timer);
    if (!rows.length) return;
    this.#count();
    this.#timer = setInterval(() => this.#count(), LOOK_MS);
  }

  #count() {
    for (const [place, nextAt] of this.#waits) {
      const seconds = Math.ceil((nextAt - Date.now()) / 1000);
      place.textContent = seconds > 0 ? `Next try in ${spoken(seconds)}.` : "It is being tried again.";
    }
  }
}

const reasonOf = ({ error, failures }) => `${shorten(error ?? "no reason was told.", LONGEST_REASON)}${failures > 1 ? ` It has failed ${failures} times in a row.` : ""}`;
const spoken = (seconds) => (seconds < 100 ? `${seconds} s` : seconds < 6_000 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`);
