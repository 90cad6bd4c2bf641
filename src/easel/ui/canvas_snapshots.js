// @ts-check
// The newest snapshot of one canvas, a picture. Nothing is requested until the user names a canvas.

import { attempt, byId, element, request, time } from "./values.js";

const ARTIFACT_URI = /^\/api\/artifacts\/art_[0-9a-f]{64}$/;

export class SnapshotPanel {
  /**
   * `on` has: open(canvasId), created(canvasId), pageOf(canvasId), which returns null for an unknown canvas.
   */
  constructor(on) {
    this.on = on;
    this.canvasId = null;
    this.isMissing = false;
    byId("canvas-form").onsubmit = (event) => {
      event.preventDefault();
      on.open(byId("canvas-id").value.trim());
    };
    byId("canvas-create").onclick = () => attempt(byId("canvas-problem"), async () => {
      await request("POST", "/api/rpc", { method: "canvas.create", params: { canvasId: this.canvasId } });
      on.created(this.canvasId);
    });
    byId("picture").onchange = () => attempt(byId("canvas-problem"), async () => {
      const [file] = byId("picture").files;
      if (file) await request("POST", `/api/canvases/${encodeURIComponent(this.canvasId)}/snapshots`, file);
      byId("picture").value = "";
    });
  }

  open(canvasId) {
    this.canvasId = canvasId;
    byId("canvas-id").value = canvasId ?? "";
    byId("pictures").open = canvasId !== null || byId("pictures").open;
    byId("canvas-problem").textContent = "";
    this.reset();
    if (canvasId === null) this.showState({ is: "none" });
  }

  reset() {
    byId("canvas-title").textContent = "";
    byId("snapshot").replaceChildren();
  }

  handleEvent({ seq, type, ts, data }) {
    if (data.visibility !== "public") return;
    if (type === "canvas.created") byId("canvas-title").textContent = data.title || this.canvasId;
    if (type === "canvas.snapshot") this.#show(data.media_payload?.sidecars?.[0]?.uri, seq, ts);
  }

  #show(uri, seq, ts) {
    if (!ARTIFACT_URI.test(uri)) return;
    const picture = element("img");
    picture.alt = `Snapshot of the canvas ${this.canvasId}, event ${seq}`;
    picture.onerror = () => picture.replaceWith(element("p", "problem", "The picture could not be loaded."));
    picture.src = uri;
    const link = element("a", "", picture);
    Object.assign(link, { href: uri, target: "_blank", rel: "noopener" });
    byId("no-snapshot").hidden = true;
    byId("snapshot").replaceChildren(link, element("figcaption", "faint", "Snapshot of ", time(ts)));
  }

  /** Link the title to the canvas's page if its address is known. */
  updateLink() {
    const page = this.isMissing ? null : this.on.pageOf(this.canvasId);
    if (page) byId("canvas-title").href = page;
    else byId("canvas-title").removeAttribute("href");
  }

  showState(state) {
    this.isMissing = state.is === "missing";
    const exists = state.is === "live" || state.is === "waiting" || state.is === "paused";
    byId("canvas-missing").hidden = !this.isMissing;
    byId("canvas-name").textContent = this.canvasId;
    this.updateLink();
    byId("add-picture").hidden = !exists;
    byId("no-snapshot").hidden = !exists || byId("snapshot").childElementCount > 0;
    const texts = {
      live: "live",
      waiting: "reconnecting…",
      paused: "paused: other tabs are in use",
      refused: state.message,
    };
    byId("canvas-link").textContent = texts[state.is] ?? "";
  }
}
