// A canvas as its viewers see it: the newest picture of it, by reference.

import { at, attempt, call, element, time } from "./values.js";

const PICTURE_URI = /^\/api\/artifacts\/art_[0-9a-f]{64}$/;

export class CanvasPanel {
  /** `on` has: open(canvasId), created(canvasId). */
  constructor(on) {
    this.canvasId = null;
    this.isMissing = false;
    at("canvas-form").onsubmit = (event) => {
      event.preventDefault();
      on.open(at("canvas-id").value.trim());
    };
    at("canvas-create").onclick = () => attempt(at("canvas-problem"), async () => {
      await call("POST", "/api/rpc", { method: "canvas.create", params: { canvasId: this.canvasId } });
      on.created(this.canvasId);
    });
    at("picture").onchange = () => attempt(at("canvas-problem"), async () => {
      const [file] = at("picture").files;
      if (file) await call("POST", `/api/canvases/${encodeURIComponent(this.canvasId)}/snapshots`, file);
      at("picture").value = "";
    });
  }

  begin(canvasId) {
    this.canvasId = canvasId;
    at("canvas-id").value = canvasId;
    at("canvas-problem").textContent = "";
    this.startAnew();
  }

  startAnew() {
    at("canvas-title").textContent = "";
    at("snapshot").replaceChildren();
  }

  hear({ seq, type, ts, data }) {
    if (data.visibility !== "public") return;
    if (type === "canvas.created") at("canvas-title").textContent = data.title ?? "";
    if (type === "canvas.snapshot") this.#show(data.media_payload?.sidecars?.[0]?.uri, seq, ts);
  }

  #show(uri, seq, ts) {
    if (!PICTURE_URI.test(uri)) return;
    const picture = element("img");
    picture.alt = `Snapshot of the canvas ${this.canvasId}, event ${seq}`;
    picture.onerror = () => picture.replaceWith(element("p", "problem", "The picture could not be loaded."));
    picture.src = uri;
    const link = element("a", "", picture);
    Object.assign(link, { href: uri, target: "_blank", rel: "noopener" });
    at("no-snapshot").hidden = true;
    at("snapshot").replaceChildren(link, element("figcaption", "faint", "Snapshot of ", time(ts)));
  }

  tell(state) {
    this.isMissing = state.is === "missing";
    const isThere = state.is === "live" || state.is === "waiting" || state.is === "resting";
    at("canvas-missing").hidden = !this.isMissing;
    at("canvas-name").textContent = this.canvasId;
    at("add-picture").hidden = !isThere;
    at("no-snapshot").hidden = !isThere || at("snapshot").childElementCount > 0;
    at("canvas-link").textContent = { live: "live", waiting: "reconnecting…", resting: "resting: other tabs are in use", refused: state.says }[state.is] ?? "";
  }
}
