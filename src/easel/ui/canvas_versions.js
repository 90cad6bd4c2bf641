// @ts-check
// The list of versions below a canvas: who wrote each, when, and what it changed; a person can restore one.
//
// The list is read when it is opened, and again after a change of the spec or the assets while it is open.
// Owns that a restore is asked about first, shows what it would restore, and names the revision that the
// person saw.

import { describeAuthor, exactText } from "./canvas_consent.js";
import { button, byId, element, time } from "./values.js";

const PAGE_SIZE = 20;
const MAX_SHOWN_BYTES = 200_000; // of an asset

export class Versions {
  #asked = null; // the number of the version that the person is asked about
  #list = []; // the versions that are shown, newest first; the first one is the present one
  #next; // the cursor of the next page, if there is one
  #reads = 0;

  /** `call(method, params)` calls a method for this canvas; `restore(version)` restores and shows it. */
  constructor(call, restore) {
    this.call = call;
    this.restore = restore;
    byId("versions").ontoggle = () => this.update();
  }

  /** Read the newest versions again, if the list is open. */
  async update() {
    if (!byId("versions").open) return;
    const read = (this.#reads += 1);
    this.#asked = null;
    await this.#try(async () => {
      const { current, versions, next } = await this.call("canvas.versions", { limit: PAGE_SIZE });
      if (read !== this.#reads) return; // a later answer is shown
      [this.#list, this.#next] = [[current, ...versions], next];
      this.#draw();
    });
  }

  async #more() {
    const read = this.#reads;
    await this.#try(async () => {
      const page = await this.call("canvas.versions", { limit: PAGE_SIZE, before: this.#next });
      if (read !== this.#reads) return;
      [this.#list, this.#next] = [[...this.#list, ...page.versions], page.next];
      this.#draw();
    });
  }

  async #try(work) {
    byId("versions-problem").textContent = "";
    try {
      await work();
    } catch (problem) {
      byId("versions-problem").textContent = problem.message;
    }
  }

  #ask(number) {
    this.#asked = number;
    this.#draw();
    const question = byId("versions-list").querySelector(".asked");
    question?.querySelector("button").focus();
    if (question) this.#showContent(number, question);
  }

  /** Show the spec of a version below the question, and a button for each asset. */
  async #showContent(number, question) {
    await this.#try(async () => {
      const { versions: [{ spec, assets }] } = await this.call("canvas.versions", { version: number });
      const views = assets.map(({ path, size }) => {
        if (size > MAX_SHOWN_BYTES) return element("div", "faint", `${path}: ${size} bytes`);
        const show = () => this.#showAsset(number, path, view);
        const view = element("div", "", button("plain", `Show ${path}`, show));
        return view;
      });
      question.after(element("pre", "", ...exactText(spec)), ...views);
    });
  }

  async #showAsset(number, path, view) {
    await this.#try(async () => {
      const { text, size } = await this.call("canvas.versions", { version: number, path });
      const shown = text === undefined ? `${size} bytes, not a text` : text;
      view.replaceChildren(path, element("pre", "", ...exactText(shown)));
    });
  }

  #draw() {
    const rows = this.#list.map((version, index) => this.#row(version, index === 0));
    const more = this.#next ? [element("li", "", button("plain", "Older versions", () => this.#more()))] : [];
    byId("versions-list").replaceChildren(...rows, ...more);
  }

  #row(version, isPresent) {
    const { version: number, writtenBy, at, ownerSessionKey: session } = version;
    const row = element(
      "li", "", element("strong", "", `Version ${number}`), isPresent ? " (present)" : "", ", written by ",
      element("span", "author", describeAuthor(writtenBy)), " ", at ? time(new Date(at).toISOString()) : "",
      element("span", "message", ` ${describeChanges(version)} Works in the folder of ${session}. `),
    );
    if (isPresent) return row;
    if (number !== this.#asked) {
      row.append(button("plain", `Restore version ${number}`, () => this.#ask(number)));
      return row;
    }
    const present = this.#list[0].ownerSessionKey;
    const isMoved = session !== present;
    const restore = () => this.#try(() => this.restore(number));
    row.append(element(
      "span", "asked", `Replace title, spec and page by version ${number}? The state is kept. `,
      isMoved ? element("strong", "", `It then works in the folder of ${session}, not of ${present}. `) : "",
      button("plain", "Keep the present version", () => this.#ask(null)), " ",
      button("", "Restore it", restore),
    ));
    return row;
  }
}

function describeChanges({ changed, moreChanges, restored }) {
  const parts = (changed ?? []).map(({ path, change }) => `${path} ${change}`);
  if (moreChanges) parts.push(`and ${moreChanges} more`);
  const source = restored ? `Restored version ${restored}: ` : "";
  return parts.length ? `${source}${parts.join(", ")}.` : "First known version.";
}
