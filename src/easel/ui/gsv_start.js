// What a page finds as `window.gsvCanvas`, and what its author is told when something breaks.

const api = {
  /** The state as it was last heard of. It cannot be written to: actions and fields change it. */
  getState: () => known.state,
  /** Calls at once, and again after every change; gives back how to stop that. */
  subscribe(listener) {
    if (typeof listener !== "function") throw new TypeError("gsvCanvas.subscribe takes a function.");
    listeners.add(listener);
    if (known.revision >= 0) call(listener);
    return () => listeners.delete(listener);
  },
  /** Runs an action of this canvas; the promise is kept when it has ended. What needs consent is asked of the person by the shell. */
  runAction: (actionId, input) => runAction(actionId, input),
  /**
   * Stops what runs, by the `eventId` that the event `gsv:status` names: its tool ends, and nothing of it is saved. Until a person has accepted the
   * canvas, only what this page has started. What waits for consent is the person's to answer.
   */
  cancelAction: (eventId) => ask("cancel", { eventId: String(eventId) }),
};
Object.defineProperty(window, "gsvCanvas", { value: Object.freeze(api), enumerable: true });

// Browsers that do not know `Connection-Allowlist` would let these out past every policy.
for (const name of ["RTCPeerConnection", "webkitRTCPeerConnection", "WebTransport"]) {
  if (name in window) Object.defineProperty(window, name, { value: undefined });
}

const placeOf = (file) => (file ? (file.startsWith(FOLDER) ? `assets/${file.slice(FOLDER.length)}` : file) : "index.html");

addEventListener("error", (event) => {
  const { target } = event;
  if (target instanceof Element) { // something it loads is not there
    const address = target.currentSrc || target.src || target.href || "";
    complain(`<${target.localName}>`, `${placeOf(address)} could not be loaded.`);
  } else {
    complain(`${placeOf(event.filename)}:${event.lineno}:${event.colno}`, event.message);
  }
}, true);
addEventListener("unhandledrejection", ({ reason }) => {
  if (reason instanceof Refused) return; // the shell shows it already
  complain("promise", reason?.stack ? `${reason.name}: ${reason.message}` : String(reason));
});
document.addEventListener("securitypolicyviolation", (event) => {
  const what = { inline: "a script or handler written in the HTML after it was stored, or an on… attribute", eval: "eval" }[event.blockedURI] ?? event.blockedURI;
  const hint = event.effectiveDirective.startsWith("script-src") && event.blockedURI === "inline"
    ? " Use data-gsv-action, or addEventListener in a script of the page."
    : /^(?:connect|img)-src/.test(event.effectiveDirective) ? " toolPolicy.connect of the spec names the origins that a page may reach." : "";
  complain(event.sourceFile ? `${placeOf(event.sourceFile)}:${event.lineNumber}` : "index.html", `Blocked by the page's policy (${event.effectiveDirective}): ${what}.${hint}`);
});

// What the person was at last: a dialog over the page makes a browser forget it.
let wasAt = null;
document.addEventListener("focusin", ({ target }) => { wasAt = target; }, true);

onMessage = ({ kind, pointer: place, keep, isLive }) => {
  if (kind === "resolve") models.get(place)?.resolve(keep);
  if (kind === "knock") say("here");
  if (kind === "link") linked(isLive);
  if (kind === "focus" && document.activeElement === document.body && wasAt?.isConnected) wasAt.focus({ preventScroll: true });
  if (kind === "leaving") settled().catch(() => {}).then(() => say("idle"));
};

// The shell gives the first state along, so that a script finds it at once; what comes later comes over the bridge.
try {
  const first = JSON.parse(window.name);
  if (first?.gsv === 1) take(first);
} catch {
  // Nothing was given along: it was too large, or this is a second page in the same frame.
}
window.name = "";
say("hello");
