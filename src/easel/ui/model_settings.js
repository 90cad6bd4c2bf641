// @ts-check
// The form of the user's model: provider, model, key, address and effort.
//
// The server returns a key masked. A typed key is sent once, and removed from the page.

import { attempt, byId, request } from "./values.js";

const PATH = "/api/settings";
// The fields that show the user's own value; an empty field means the default.
const FIELDS = {
  provider: "model-provider",
  model: "model-name",
  base_url: "model-url",
  reasoning_effort: "model-effort",
};

export class ModelSettings {
  constructor() {
    byId("model-form").onsubmit = (event) => {
      event.preventDefault();
      this.#change(this.#readForm(), "Saved. Runs use it from their next step on.");
    };
    // A model and an address belong to their provider.
    byId("model-provider").onchange = () => {
      byId("model-name").value = "";
      byId("model-url").value = "";
      byId("model-name").placeholder = "Default of the provider";
    };
    byId("model-forget").onclick = () => this.#change({ api_key: null }, "The key was removed.");
    byId("model-check").onclick = () => this.#check();
  }

  refresh() {
    return attempt(byId("model-problem"), async () => this.#show(await request("GET", PATH)));
  }

  #readForm() {
    const changes = {};
    for (const [name, id] of Object.entries(FIELDS)) changes[name] = byId(id).value.trim() || null;
    const key = byId("model-key").value.trim();
    if (key) changes.api_key = key;
    return changes;
  }

  #change(changes, result) {
    return this.#run(async () => {
      this.#show(await request("PUT", PATH, changes), result);
      byId("model-key").value = "";
    });
  }

  #check() {
    return this.#run(async () => {
      byId("model-result").textContent = "Asking the saved model…";
      const { ok, text } = await request("POST", `${PATH}/check`);
      byId("model-result").textContent = ok ? text : "";
      byId("model-problem").textContent = ok ? "" : text;
    });
  }

  /** Run a request with the buttons disabled, and show its problem. */
  async #run(work) {
    const buttons = byId("model-form").querySelectorAll("button");
    for (const node of buttons) node.disabled = true;
    byId("model-result").textContent = "";
    await attempt(byId("model-problem"), work);
    for (const node of buttons) node.disabled = false;
  }

  #show(settings, result = "") {
    const { sources } = settings;
    document.body.dataset.model = settings.provider === "scripted" ? "scripted" : "provider";
    for (const [name, id] of Object.entries(FIELDS)) {
      byId(id).value = sources[name] === "user" ? settings[name] ?? "" : "";
    }
    byId("model-now").textContent = settings.model === settings.provider
      ? settings.provider : `${settings.model} (${settings.provider})`;
    byId("model-name").placeholder = settings.model;
    byId("model-url").placeholder = settings.base_url ?? "The provider's own address";
    byId("model-key").placeholder = describeKey(settings);
    byId("model-forget").hidden = sources.api_key !== "user";
    byId("model-result").textContent = [result, settings.note ?? ""].join(" ").trim();
  }
}

function describeKey({ api_key: key, sources }) {
  if (key === null) return "None";
  return sources.api_key === "host" ? `${key} (of this host)` : key;
}
