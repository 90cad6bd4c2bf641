// @ts-check
// The values of a dialog or panel that were visible to their end: a person agrees to what was on the screen.
// RS-64

const MARGIN_PX = 2;

export class SeenValues {
  #observer = null;
  #unseen = new Set(); // the ends of values
  #covered = null; // the height of the bar that the observer allows for

  /** `root` scrolls and has no scrolling part inside; `bar` covers its lower end; `onChange` is called. */
  constructor(root, bar, onChange) {
    this.root = root;
    this.bar = bar;
    this.onChange = onChange;
    // The bar grows when its lines wrap: with a hint, in a narrower window, with a larger font.
    new ResizeObserver(() => { if (this.#observer) this.#observe(); }).observe(bar);
  }

  get isComplete() { return this.#unseen.size === 0; }

  /** Watch these `dd` elements instead of the former ones: each counts as seen when its end was visible. */
  watch(elements) {
    this.stop();
    for (const value of elements) {
      const end = document.createElement("span"); // an empty element after the last character
      end.className = "value-end";
      value.append(end);
      this.#unseen.add(end);
    }
    this.onChange(); // before the bar is measured: a hint may be shown in it
    this.#observe();
  }

  /** Observe the values that are not seen yet, in the part of the root that the bar does not cover. */
  #observe() {
    const covered = Math.max(0, this.bar.offsetHeight - MARGIN_PX);
    if (this.#observer && covered === this.#covered) return;
    this.#observer?.disconnect();
    this.#covered = covered;
    const mark = (entries) => {
      for (const { isIntersecting, target } of entries) if (isIntersecting) this.#unseen.delete(target);
      this.onChange();
    };
    const rootMargin = `0px 0px -${covered}px 0px`;
    this.#observer = new IntersectionObserver(mark, { root: this.root, rootMargin });
    for (const end of this.#unseen) this.#observer.observe(end);
  }

  stop() {
    this.#observer?.disconnect();
    this.#observer = null;
    this.#unseen.clear();
  }
}
