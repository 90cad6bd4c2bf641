// The generated page of a canvas without an index.html: writable values as fields, saved results, lists of
// objects as tables. It uses the same API and attributes as any other page.

import "./page.css";
import { isObject } from "../values";
import { drawState, isDrawingDue, setComposing } from "./drawing";
import { type Statuses, showOutcomes } from "./outcomes";

const BLUR_MS = 400; // wait after a field loses the focus: a button must not move while it is clicked

function find(id: string): HTMLElement {
  const node = document.getElementById(id);
  if (!node) throw new Error(`The generated page has no element “${id}”.`);
  return node;
}

const stateNode = find("state");
let statuses: Statuses = {};

function draw(): void {
  const state = window.gsvCanvas.getState();
  const isEmpty = isObject(state) && Object.keys(state).length === 0;
  find("nothing").hidden = !isEmpty || find("actions").childElementCount > 0;
  drawState(state, stateNode);
}

function drawIfDue(): void {
  if (isDrawingDue()) draw();
}

/** Show which fields have an incomplete entry, and draw again when the last entry is saved. */
function handleMarks(changes: readonly MutationRecord[]): void {
  for (const { target, attributeName } of changes) {
    if (attributeName === "data-gsv-half" && target instanceof Element) showIncomplete(target);
  }
  drawIfDue();
}

function showIncomplete(field: Element): void {
  const isIncomplete = field.hasAttribute("data-gsv-half");
  if (isIncomplete) field.setAttribute("aria-invalid", "true");
  else field.removeAttribute("aria-invalid");
  const problem = field.parentElement?.nextElementSibling;
  if (problem?.matches(".wrong")) {
    problem.textContent = isIncomplete ? "This must be a number; it is not saved." : "";
  }
}

window.gsvCanvas.subscribe(draw);
document.addEventListener("focusout", () => setTimeout(drawIfDue, BLUR_MS));
document.addEventListener("compositionstart", () => setComposing(true));
document.addEventListener("compositionend", () => setComposing(false));
// The SDK marks a field with these attributes while its entry is unsaved or incomplete.
new MutationObserver(handleMarks).observe(stateNode, {
  subtree: true,
  attributeFilter: ["data-gsv-unsaved", "data-gsv-half"],
});
window.gsvCanvas.subscribe(() => showOutcomes(statuses));
document.addEventListener("gsv:status", (event) => {
  statuses = event.detail;
  showOutcomes(statuses);
});
