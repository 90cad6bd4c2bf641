// The status of the actions beside their buttons: outcome, live output and the stop button.

import type { ActionStatus } from "../messages";
import { memberOf, resultNotes } from "./results";
import { isResult, placeOfResult } from "./spec";

const OUTPUT_LINES = 12;
// biome-ignore lint/suspicious/noControlCharactersInRegex: a terminal's codes begin with a control character
const TERMINAL_CODES = /\u001b\[[0-9;?]*[A-Za-z]|\u001b\][^\u0007]*\u0007/g;

export type Statuses = Readonly<Record<string, ActionStatus>>;

const afterCarriageReturn = (line: string): string => line.slice(line.trimEnd().lastIndexOf("\r") + 1);

/** Return the last lines of an output as a terminal would show them. */
export function lastLines(output: string): string {
  const lines = output.replace(TERMINAL_CODES, "").split("\n").map(afterCarriageReturn);
  return lines.slice(-OUTPUT_LINES - 1).join("\n");
}

const findFor = (attribute: "stop" | "output", actionId: string): HTMLElement | null =>
  document.querySelector<HTMLElement>(`[data-${attribute}="${CSS.escape(actionId)}"]`);

/** Show the output and the stop button of a running action. The output of a failed one stays. */
function showRunning(actionId: string, execution: ActionStatus | undefined): void {
  const stop = findFor("stop", actionId);
  if (stop instanceof HTMLButtonElement) {
    stop.hidden = execution?.status !== "running";
    stop.onclick = () => {
      stop.disabled = true;
      const enable = (): void => {
        stop.disabled = false;
      };
      const stopped = window.gsvCanvas.cancelAction(execution?.eventId);
      stopped.catch(() => {}).finally(enable); // it may just have ended
    };
  }
  const outputNode = findFor("output", actionId);
  if (!outputNode) return;
  const output = execution?.status === "completed" ? "" : (execution?.output ?? "");
  outputNode.hidden = !output;
  outputNode.textContent = lastLines(output);
}

/** Return the notes on the result of this execution, if the state contains that result already. */
function savedNotes(actionId: string, endedAt: string | undefined): string[] {
  const place = placeOfResult(actionId);
  if (!place) return [];
  const saved = place.reduce(memberOf, window.gsvCanvas.getState());
  const last: unknown = Array.isArray(saved) ? saved.at(-1) : saved;
  return isResult(last) && last.finishedAt === endedAt ? resultNotes(last.result) : [];
}

function outcomeOf(
  execution: ActionStatus | undefined,
  notes: readonly string[],
  isStopped: boolean,
): string {
  switch (execution?.status) {
    case "running":
      return "running…";
    case "completed":
      return ["done", ...notes].join(", ");
    case "failed":
      return isStopped ? "stopped" : `failed: ${execution.error ?? ""}`;
    case "refused":
      return "refused";
    case "asked":
      return "waits for consent";
    default:
      return "";
  }
}

export function showOutcomes(statuses: Statuses): void {
  for (const node of document.querySelectorAll<HTMLElement>("[data-outcome]")) {
    const actionId = node.dataset.outcome ?? "";
    const execution = Object.hasOwn(statuses, actionId) ? statuses[actionId] : undefined;
    const status = execution?.status;
    const notes = status === "completed" ? savedNotes(actionId, execution?.at) : [];
    const isStopped = status === "failed" && execution?.errorName === "CANCELLED";
    const outcome = outcomeOf(execution, notes, isStopped);
    node.className = `outcome ${isStopped ? "stopped" : notes.length ? "failed" : (status ?? "")}`;
    node.title = isStopped ? (execution?.error ?? "") : "";
    // An unchanged text is not announced again.
    if (node.textContent !== outcome) node.textContent = outcome;
    showRunning(actionId, execution);
  }
}
