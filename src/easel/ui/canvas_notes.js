// What the canvas's author, and whoever uses it, is told when something does not work: where, and what. Always as text.

import { speak } from "./canvas_spoken.js";
import { at, element, shorten } from "./values.js";

const MOST = 100;
const SPOKEN = 200; // characters of it that are read out

export class Notes {
  #notes = []; // {at, says}
  #broken = [];

  constructor() {
    at("notes-clear").onclick = () => {
      this.#notes = [];
      this.#draw();
    };
  }

  add(where, says) {
    this.#notes = [...this.#notes.filter((one) => one.at !== where || one.says !== says), { at: where, says }].slice(-MOST);
    this.#draw();
    speak(`${where}: ${shorten(says, SPOKEN)}`);
  }

  /** It has turned out not to be so. */
  takeBack(where, says) {
    this.#notes = this.#notes.filter((one) => one.at !== where || one.says !== says);
    this.#draw();
  }

  /** What is bound to nothing, as it is now: what was mended is gone. */
  broken(list) {
    this.#broken = list;
    this.#draw();
  }

  /** Another page: what was said of the one before is over. */
  clear() {
    [this.#notes, this.#broken] = [[], []];
    this.#draw();
  }

  #draw() {
    const all = [...this.#broken, ...this.#notes];
    at("notes").hidden = !all.length;
    at("notes-count").textContent = all.length === 1 ? "1 problem" : `${all.length} problems`;
    const latest = all.at(-1);
    at("notes-latest").textContent = latest ? shorten(`${latest.at}: ${latest.says}`, 200) : "";
    at("notes-list").replaceChildren(...all.map((one) => element("li", "", element("code", "", one.at), " ", element("span", "says", one.says))));
    if (!all.length) at("notes").open = false;
  }
}
