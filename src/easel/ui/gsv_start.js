// `window.gsvCanvas`, the API of a canvas's page, and the reports of problems to the page's author.

const api = {
  /** Return the latest state. The object is frozen: a page changes the state by actions and fields. */
  getState: () => known.state,
  /**
   * Call a function now and after every change of the state. Returns a function that ends the subscription.
   */
  subscribe(listener) {
    if (typeof listener !== "function") throw new TypeError("gsvCanvas.subscribe needs a function.");
    listeners.add(listener);
    if (known.revision >= 0) callListener(listener);
    return () => listeners.delete(listener);
  },
  /**
   * Run an action of this canvas. The promise settles when the action has ended. If the action needs consent,
   * the shell asks the person first.
   */
  runAction: (actionId, input) => runAction(actionId, input),
  /**
   * Stop a running action by the `eventId` of the event `gsv:status`: its tool ends and its result is not
   * saved. Until a person has accepted the canvas, a page can stop only actions that it has started. A
   * pending confirmation cannot be stopped.
   */
  cancelAction: (eventId) => request("cancel", { eventId: String(eventId) }),
};
Object.defineProperty(window, "gsvCanvas", { value: Object.freeze(api), enumerable: true });

// Browsers that do not enforce `Connection-Allowlist` let these APIs connect in spite of every other policy.
for (const name of ["RTCPeerConnection", "webkitRTCPeerConnection", "WebTransport"]) {
  if (name in window) Object.defineProperty(window, name, { value: undefined });
}

function fileName(address) {
  if (!address) return "index.html";
  return address.startsWith(FOLDER) ? `assets/${address.slice(FOLDER.length)}` : address;
}

// The insertions of the server into the page, as [line, column, length].
const SHIFTS = (document.currentScript?.dataset.shifts ?? "")
  .split(",").filter(Boolean).map((shift) => shift.split(":").map(Number));

/** Return the column in the page as its author wrote it. */
function authorColumn(address, line, column) {
  if (address !== location.href.replace(/#.*/s, "")) return column;
  let inserted = 0;
  for (const [atLine, atColumn, length] of SHIFTS) {
    if (atLine === line && column - inserted >= atColumn + length) inserted += length;
  }
  return column - inserted;
}

addEventListener("error", (event) => {
  const { target } = event;
  if (target instanceof Element) { // a resource failed to load
    const address = target.currentSrc || target.src || addressOf(target);
    reportProblem(`<${target.localName}>`, `${fileName(address)} could not be loaded.`);
  } else {
    const { filename, lineno, colno } = event;
    const column = authorColumn(filename, lineno, colno);
    reportProblem(`${fileName(filename)}:${lineno}:${column}`, event.message);
  }
}, true);
addEventListener("unhandledrejection", ({ reason }) => {
  if (reason instanceof RequestRefused) return; // the shell shows the refusal
  reportProblem("promise", reason?.stack ? `${reason.name}: ${reason.message}` : String(reason));
});
document.addEventListener("securitypolicyviolation", (event) => {
  const { blockedURI, effectiveDirective, sourceFile, lineNumber } = event;
  const blocked = {
    inline: "a script or handler written in the HTML after it was stored, or an on… attribute",
    eval: "eval",
  }[blockedURI] ?? blockedURI;
  let hint = "";
  if (effectiveDirective.startsWith("script-src") && blockedURI === "inline") {
    hint = " Use data-gsv-action, or addEventListener in a script of the page.";
  } else if (/^(?:connect|img)-src/.test(effectiveDirective)) {
    hint = " toolPolicy.connect of the spec names the origins that a page may reach.";
  }
  const place = sourceFile ? `${fileName(sourceFile)}:${lineNumber}` : "index.html";
  reportProblem(place, `Blocked by the page's policy (${effectiveDirective}): ${blocked}.${hint}`);
});

// The element that had the focus: a browser forgets it while a dialog covers the page.
let lastFocus = null;
document.addEventListener("focusin", ({ target }) => { lastFocus = target; }, true);

onMessage = ({ kind, pointer, keep, isLive }) => {
  if (kind === "resolve") findConflict(pointer)?.resolve(keep);
  if (kind === "ping") send("pong");
  if (kind === "link") setConnected(isLive);
  if (kind === "focus" && document.activeElement === document.body && lastFocus?.isConnected) {
    lastFocus.focus({ preventScroll: true });
  }
  if (kind === "leaving") allSaved().catch(() => {}).then(() => send("idle"));
};

// The shell passes the first state in the frame's name, so that scripts have it before the first message
// arrives.
try {
  const initial = JSON.parse(window.name);
  if (initial?.gsv === 1) update(initial);
} catch {
  // The name is empty: the state was too large, or this is a second document in the same frame.
}
window.name = "";
send("hello");
