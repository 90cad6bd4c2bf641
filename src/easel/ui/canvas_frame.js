// The frame that a canvas's page runs in: opaque, without a way out, and made anew whenever its page has changed.

const MOST_GIVEN = 400_000; // characters of the first state that go along with the frame; more comes over the bridge
const KNOCK_MS = 2_000; // how long a page that has just loaded may take to say that it is one
const SAVE_MS = 1_500; // how long a page may take to hand over what was typed before it is made anew

export class Frame {
  #frame = null;
  #idle = () => {};

  /** `on` has: left() when the frame shows something that is no page of the canvas. */
  constructor(stage, address, bridge, on) {
    Object.assign(this, { stage, address, bridge, on });
  }

  hasFailed = false; // it loaded something, and that was no page of ours: the server went away meanwhile, most likely

  get isThere() { return this.#frame !== null; }

  show(first) {
    this.hasFailed = false;
    const frame = document.createElement("iframe");
    frame.setAttribute("sandbox", "allow-scripts allow-forms");
    frame.setAttribute("referrerpolicy", "no-referrer");
    frame.setAttribute("allow", "");
    frame.title = "The page of the canvas";
    const given = JSON.stringify({ gsv: 1, ...first });
    if (given.length <= MOST_GIVEN) frame.name = given;
    frame.src = this.address;
    frame.onload = () => this.#knock(frame);
    this.#frame = frame;
    this.bridge.attach(frame);
    this.stage.replaceChildren(frame);
  }

  /** Whatever has loaded there: a page of ours has the SDK, and answers. */
  #knock(frame) {
    const { heard } = this.bridge;
    this.hasFailed = frame === this.#frame && !this.bridge.isGreeted;
    this.bridge.say("knock");
    setTimeout(() => { if (frame === this.#frame && this.bridge.heard === heard) this.on.left(); }, this.bridge.isGreeted ? KNOCK_MS : 0);
  }

  /** What was typed and not yet stored is stored first. */
  async showAnew(first) {
    if (this.bridge.isGreeted) {
      await new Promise((resolve) => {
        this.#idle = resolve;
        setTimeout(resolve, SAVE_MS);
        this.bridge.say("leaving");
      });
    }
    this.show(first());
  }

  isIdle() { this.#idle(); }

  remove() {
    this.bridge.attach(null);
    this.#frame = null;
    this.stage.replaceChildren();
  }
}
