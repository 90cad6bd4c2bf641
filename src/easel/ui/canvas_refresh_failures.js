// @ts-check
// One line for each failing refresh job of a canvas. Otherwise the failure would not be visible: a job runs
// without a click, and its last result is still on the page.
//
// A line stays until its job succeeds or is removed. Titles and reasons are shown as text.

import { byId, element, shorten } from "./values.js";

const COUNTDOWN_MS = 1_000;
const MAX_LINES = 5;
const MAX_REASON_LENGTH = 300;

export class RefreshFailures {
  #shown = "";
  #countdowns = []; // [element, time of the next attempt]
  #timer = null;

  /** Show the failing jobs. `titleOf` returns the title of an action. */
  show(jobs, titleOf) {
    const rows = jobs.map((job) => ({ ...job, title: titleOf(job.actionId) }));
    const content = JSON.stringify(rows);
    if (content === this.#shown) return;
    this.#shown = content;
    const visible = rows.slice(0, MAX_LINES);
    this.#countdowns = visible.map(({ nextAt }) => [element("span", "faint"), nextAt]);
    // A screen reader must not announce every second.
    for (const [countdown] of this.#countdowns) countdown.setAttribute("aria-live", "off");
    const line = (row, index) => element(
      "p", "", `“${row.title}” fails to refresh: `, element("span", "reason", reasonOf(row)), " ",
      this.#countdowns[index][0],
    );
    byId("failing").hidden = !rows.length;
    byId("failing").replaceChildren(
      ...visible.map(line),
      rows.length > MAX_LINES ? `… and ${rows.length - MAX_LINES} more.` : "",
    );
    clearInterval(this.#timer);
    if (!rows.length) return;
    this.#count();
    this.#timer = setInterval(() => this.#count(), COUNTDOWN_MS);
  }

  #count() {
    for (const [countdown, nextAt] of this.#countdowns) {
      const seconds = Math.ceil((nextAt - Date.now()) / 1000);
      const text = `Next attempt in ${formatDuration(seconds)}.`;
      countdown.textContent = seconds > 0 ? text : "Trying again now.";
    }
  }
}

function reasonOf({ error, failures }) {
  const count = failures > 1 ? ` It has failed ${failures} times in a row.` : "";
  return `${shorten(error ?? "no reason was given.", MAX_REASON_LENGTH)}${count}`;
}

function formatDuration(seconds) {
  if (seconds < 100) return `${seconds} s`;
  return seconds < 6_000 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}
