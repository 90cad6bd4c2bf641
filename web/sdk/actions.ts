// The actions that a page runs: by clicks, keys, changes and forms, and by `gsvCanvas.runAction`.

import { addressOf, isInside } from "./addresses";
import { handlers, RequestRefused, reportProblem, request } from "./bridge";
import { closestTo } from "./dom";
import { inputOf } from "./inputs";
import { allSaved } from "./models";
import { actionOf, busy, isNative, isTrigger, runsOnChange, triggerOf } from "./triggers";

/** Save all entries, then run the action: it runs on the values that the person sees. */
export async function runAction(actionId: unknown, input: unknown = {}): Promise<unknown> {
  const params = { actionId: String(actionId), input };
  try {
    await allSaved();
  } catch (problem) {
    if (!(problem instanceof RequestRefused)) throw problem;
    // Send the request anyway: the shell refuses it and shows the reason.
    if (problem.name === "UNAVAILABLE") return request("action", { ...params, isUnsaved: true });
    reportProblem(`action ${params.actionId}`, `It was not run: ${problem.message}`);
    throw problem;
  }
  return request("action", params);
}

async function runElement(element: Element, submitter: HTMLElement | null): Promise<void> {
  const actionId = actionOf(element);
  if (actionId === null || busy.has(element)) return;
  busy.add(element);
  handlers.render();
  try {
    await runAction(actionId, inputOf(element, submitter));
  } catch (problem) {
    if (!(problem instanceof RequestRefused)) throw problem; // the shell shows a refusal
  } finally {
    busy.delete(element);
    handlers.render();
  }
}

function handleClick(event: MouseEvent): void {
  const element = triggerOf(event);
  if (element && !(element instanceof HTMLFormElement) && !runsOnChange(element)) {
    event.preventDefault(); // a button in a form, or a link, only runs its action
    runElement(element, null);
    return;
  }
  const link = event.target instanceof Element ? closestTo(event.target, "a, area") : null;
  const address = link ? addressOf(link) : "";
  if (link && !isInside(address)) {
    event.preventDefault();
    reportProblem(`link to ${address.slice(0, 200)}`, "A canvas cannot open links to other sites.");
  }
}

function handleKey(event: KeyboardEvent): void {
  const element = triggerOf(event);
  if (!element || event.target !== element || isNative(element) || event.repeat) return;
  if (event.key !== "Enter" && event.key !== " ") return;
  event.preventDefault();
  runElement(element, null);
}

function handleChange(event: Event): void {
  const element = triggerOf(event);
  if (element && runsOnChange(element)) runElement(element, null);
}

function handleSubmit(event: SubmitEvent): void {
  event.preventDefault(); // a form is never sent
  const { target, submitter } = event;
  if (target instanceof Element && isTrigger(target)) runElement(target, submitter);
}

export function listenForActions(): void {
  document.addEventListener("click", handleClick);
  document.addEventListener("keydown", handleKey);
  document.addEventListener("change", handleChange);
  document.addEventListener("submit", handleSubmit);
}
