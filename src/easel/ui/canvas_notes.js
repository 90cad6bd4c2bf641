// @ts-check
// The list of problems below a canvas, each with its place and its message. Both are shown as text.

import { announce } from "./canvas_announce.js";
import { byId, element, shorten } from "./values.js";

const MAX_NOTES = 100;
const MAX_ANNOUNCED_LENGTH = 200;
const MAX_SUMMARY_LENGTH = 200;

export class Notes {
  #notes = []; // {place, message}
  #brokenBindings = [];

  constructor() {
    byId("notes-clear").onclick = () => {
      this.#notes = [];
      this.#draw();
    };
  }

  add(place, message) {
    this.#notes = [...this.#without(place, message), { place, message }].slice(-MAX_NOTES);
    this.#draw();
    announce(`${place}: ${shorten(message, MAX_ANNOUNCED_LENGTH)}`);
  }

  remove(place, message) {
    this.#notes = this.#without(place, message);
    this.#draw();
  }

  #without(place, message) {
    return this.#notes.filter((note) => note.place !== place || note.message !== message);
  }

  /** Replace the list of broken bindings. */
  setBrokenBindings(list) {
    this.#brokenBindings = list;
    this.#draw();
  }

  /** Remove all notes, because another page is shown. */
  clear() {
    [this.#notes, this.#brokenBindings] = [[], []];
    this.#draw();
  }

  #draw() {
    const all = [...this.#brokenBindings, ...this.#notes];
    byId("notes").hidden = !all.length;
    byId("notes-count").textContent = all.length === 1 ? "1 problem" : `${all.length} problems`;
    const latest = all.at(-1);
    const summary = latest ? `${latest.place}: ${latest.message}` : "";
    byId("notes-latest").textContent = shorten(summary, MAX_SUMMARY_LENGTH);
    byId("notes-list").replaceChildren(...all.map(({ place, message }) => (
      element("li", "", element("code", "", place), " ", element("span", "message", message))
    )));
    if (!all.length) byId("notes").open = false;
  }
}
