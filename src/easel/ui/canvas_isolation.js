// @ts-check
// Whether this browser isolates the page of a canvas, and what the shell says where it does not. RS-63
//
// Owns the probe: a frame with the connection policy of a page, which tries to connect against it. A browser
// in which it can, or in which it does not answer in time, does not isolate. There a canvas that no person
// has accepted shows its generated page; the server enforces it.

import { button, byId } from "./values.js";

const PROBE_MS = 15_000; // a browser that answers does so at once
const DISMISSED = "easel.isolation"; // in the local storage, by canvas
const ENTRY = "assets/index.html";
// Over plain HTTP a browser does not send the purpose of a request.
const CANNOT = isSecureContext
  ? "this browser cannot fully isolate"
  : "over plain HTTP Easel cannot check that the browser isolates";

/** Resolve with whether this browser enforces the connection policy of the view at this address. */
export async function probeIsolation(view) {
  if (!isSecureContext) return false;
  const frame = document.createElement("iframe");
  frame.setAttribute("sandbox", "allow-scripts");
  frame.setAttribute("referrerpolicy", "no-referrer");
  frame.hidden = true;
  const { port1, port2 } = new MessageChannel(); // only the probe gets the other port
  const result = new Promise((resolve) => {
    port1.onmessage = ({ data }) => resolve(data === true);
    setTimeout(() => resolve(false), PROBE_MS);
  });
  frame.onload = () => frame.contentWindow.postMessage("probe", "*", [port2]);
  frame.src = `${view}probe.html`;
  document.body.append(frame);
  const isIsolated = await result;
  frame.remove();
  return isIsolated;
}

/** Return whether the own page of a canvas is withheld: no person accepted it, and nothing isolates it. */
export function isWithheld({ accepted, assets }, isIsolated) {
  return accepted === false && !isIsolated && assets.includes(ENTRY);
}

/** Say why the own page of a canvas is not shown or, once per canvas, that it is not fully isolated. */
export function showIsolation(snapshot, isIsolated) {
  const { accepted, assets, descriptor: { agentId, canvasId } } = snapshot;
  byId("withheld").hidden = !isWithheld(snapshot, isIsolated);
  byId("withheld").textContent = (
    `Generated page: ${CANNOT} the canvas’s own page, so it is shown only after you accept it.`
  );
  const key = `${DISMISSED}.${agentId}.${canvasId}`;
  const isPartial = accepted !== false && !isIsolated && assets.includes(ENTRY);
  const note = byId("partial");
  note.hidden = !isPartial || localStorage.getItem(key) !== null;
  if (note.firstChild) return; // a button must not be replaced under the pointer
  note.append(
    `${CANNOT[0].toUpperCase()}${CANNOT.slice(1)} the page of this canvas: it could send what it reads to `,
    "other sites. ",
    button("", "Dismiss", () => {
      localStorage.setItem(key, new Date().toISOString());
      note.hidden = true;
    }),
  );
}
