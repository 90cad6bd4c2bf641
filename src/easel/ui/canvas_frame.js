// @ts-check
// The frame of a canvas's page: sandboxed, with an opaque origin, and created again whenever the page has
// changed.

// Characters of the state that is passed in the frame's name; a longer state is sent over the bridge.
const MAX_INITIAL_LENGTH = 400_000;
const PING_MS = 2_000; // a loaded page must answer the shell within this time
const SAVE_MS = 1_500; // a page may take this long to save its fields before it is replaced

export class Frame {
  #frame = null;
  #onIdle = () => {};

  /**
   * `getAddress` returns the address of the page. `on` has: left(), called when the frame shows something
   * other than a page of the canvas.
   */
  constructor(stage, getAddress, bridge, on) {
    this.stage = stage;
    this.getAddress = getAddress;
    this.bridge = bridge;
    this.on = on;
  }

  hasFailed = false; // the loaded document has no SDK: usually the server was unreachable

  get exists() { return this.#frame !== null; }

  show(initial) {
    this.hasFailed = false;
    const frame = document.createElement("iframe");
    frame.setAttribute("sandbox", "allow-scripts allow-forms");
    frame.setAttribute("referrerpolicy", "no-referrer");
    frame.setAttribute("allow", "");
    frame.title = "The page of the canvas";
    const name = JSON.stringify({ gsv: 1, ...initial });
    if (name.length <= MAX_INITIAL_LENGTH) frame.name = name;
    frame.src = this.getAddress();
    frame.onload = () => this.#ping(frame);
    this.#frame = frame;
    this.bridge.attach(frame);
    this.stage.replaceChildren(frame);
  }

  /** Check that the loaded document is a page of the canvas: only such a page has the SDK and answers. */
  #ping(frame) {
    const { receivedCount, isGreeted } = this.bridge;
    this.hasFailed = frame === this.#frame && !isGreeted;
    this.bridge.send("ping");
    setTimeout(() => {
      if (frame === this.#frame && this.bridge.receivedCount === receivedCount) this.on.left();
    }, isGreeted ? PING_MS : 0);
  }

  /** Let the page save its fields, then create the frame again. */
  async reload(getInitial) {
    if (this.bridge.isGreeted) {
      await new Promise((resolve) => {
        this.#onIdle = () => resolve(undefined);
        setTimeout(resolve, SAVE_MS);
        this.bridge.send("leaving");
      });
    }
    this.show(getInitial());
  }

  /** Handle the page's message that its fields are saved. */
  handleIdle() { this.#onIdle(); }

  remove() {
    this.bridge.attach(null);
    this.#frame = null;
    this.stage.replaceChildren();
  }
}
