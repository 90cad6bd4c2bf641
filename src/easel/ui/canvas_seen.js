// The values of a dialog or panel that were visible to their end: a person agrees to what was on the screen.
// RS-64

const MARGIN_PX = 2;

export class SeenValues {
  #observer = null;
  #unseen = new Set();

  /** `root` scrolls and has no scrolling part inside; `bar` covers its lower end; `onChange` is called. */
  constructor(root, bar, onChange) {
    Object.assign(this, { root, bar, onChange });
  }

  get isComplete() { return this.#unseen.size === 0; }

  /** Watch these `dd` elements instead of the former ones: each counts as seen when its end was visible. */
  watch(elements) {
    this.stop();
    this.#unseen = new Set(elements);
    const mark = (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (isIntersecting) this.#unseen.delete(target.closest("dd"));
      }
      this.onChange();
    };
    const covered = Math.max(0, this.bar.offsetHeight - MARGIN_PX);
    const rootMargin = `0px 0px -${covered}px 0px`;
    this.#observer = new IntersectionObserver(mark, { root: this.root, rootMargin });
    for (const value of elements) {
      const end = document.createElement("span"); // an empty element after the last character
      end.className = "value-end";
      (value.lastElementChild ?? value).append(end);
      this.#observer.observe(end);
    }
    this.onChange();
  }

  stop() {
    this.#observer?.disconnect();
    this.#unseen.clear();
  }
}
