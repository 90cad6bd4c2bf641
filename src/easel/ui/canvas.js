// The pictures of one canvas: the newest of it, by reference. Nothing is looked for before somebody has named a canvas.

import { at, attempt, call, element, time } from "./values.js";

const PICTURE_URI = /^\/api\/artifacts\/art_[0-9a-f]{64}$/;

export class CanvasPanel {
  /** `on` has: open(canvasId), created(canvasId), pageOf(canvasId) if it is known. */
  constructor(on) {
    this.on = on;
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
    at("canvas-id").value = canvasId ?? "";
    at("pictures").open = canvasId !== null || at("pictures").open;
    at("canvas-problem").textContent = "";
    this.startAnew();
    if (canvasId === null) this.tell({ is: "none" });
  }

  startAnew() {
    at("canvas-title").textContent = "";
    at("snapshot").replaceChildren();
  }

  hear({ seq, type, ts, data }) {
    if (data.visibility !== "public") return;
    if (type === "canvas.created") at("canvas-title").textContent = data.title || this.canvasId;
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

  /** Its title leads to its page, as soon as that is known. */
  tellPage() {
    const page = this.isMissing ? null : this.on.pageOf(this.canvasId);
    if (page) at("canvas-title").href = page;
    else at("canvas-title").removeAttribute("href");
  }

  tell(state) {
    this.isMissing = state.is === "missing";
    const isThere = state.is === "live" || state.is === "waiting" || state.is === "resting";
    at("canvas-missing").hidden = !this.isMissing;
    at("canvas-name").textContent = this.canvasId;
    this.tellPage();
    at("add-picture").hidden = !isThere;
    at("no-snapshot").hidden = !isThere || at("snapshot").childElementCount > 0;
    at("canvas-link").textContent = { live: "live", waiting: "reconnecting…", resting: "resting: other tabs are in use", refused: state.says }[state.is] ?? "";
  }
}
