// Reports of problems to the page's author: errors of scripts, files that do not load, and what the page's
// policy blocks.

import { addressOf, fileName } from "./addresses";
import { RequestRefused, reportProblem } from "./bridge";

/** Something that the server has inserted into a line of the page. */
export interface Insertion {
  readonly line: number;
  readonly column: number;
  readonly length: number;
}

/** Return the insertions that the server has written to the script element: `line:column:length,…`. */
export function parseInsertions(text: string): Insertion[] {
  return text
    .split(",")
    .filter(Boolean)
    .map((insertion) => {
      const [line = 0, column = 0, length = 0] = insertion.split(":").map(Number);
      return { line, column, length };
    });
}

/** Return the column in the page as its author wrote it. */
export function authorColumn(insertions: readonly Insertion[], line: number, column: number): number {
  let inserted = 0;
  for (const insertion of insertions) {
    const isBefore = column - inserted >= insertion.column + insertion.length;
    if (insertion.line === line && isBefore) inserted += insertion.length;
  }
  return column - inserted;
}

function reportMissingFile(element: Element): void {
  const address =
    ("currentSrc" in element && String(element.currentSrc)) ||
    ("src" in element && String(element.src)) ||
    addressOf(element);
  reportProblem(`<${element.localName}>`, `${fileName(address)} could not be loaded.`);
}

function reportScriptError(event: ErrorEvent, insertions: readonly Insertion[]): void {
  const { filename, lineno, colno } = event;
  const isPage = filename === location.href.replace(/#.*/s, "");
  const column = isPage ? authorColumn(insertions, lineno, colno) : colno;
  reportProblem(`${fileName(filename)}:${lineno}:${column}`, event.message);
}

function reportRejection({ reason }: PromiseRejectionEvent): void {
  if (reason instanceof RequestRefused) return; // the shell shows the refusal
  reportProblem("promise", reason?.stack ? `${reason.name}: ${reason.message}` : String(reason));
}

const BLOCKED = new Map([
  ["inline", "a script or handler written in the HTML after it was stored, or an on… attribute"],
  ["eval", "eval"],
]);

function reportViolation(event: SecurityPolicyViolationEvent): void {
  const { blockedURI, effectiveDirective, sourceFile, lineNumber } = event;
  let hint = "";
  if (effectiveDirective.startsWith("script-src") && blockedURI === "inline") {
    hint = " Use data-gsv-action, or addEventListener in a script of the page.";
  } else if (/^(?:connect|img)-src/.test(effectiveDirective)) {
    hint = " toolPolicy.connect of the spec names the origins that a page may reach.";
  }
  const place = sourceFile ? `${fileName(sourceFile)}:${lineNumber}` : "index.html";
  const blocked = BLOCKED.get(blockedURI) ?? blockedURI;
  reportProblem(place, `Blocked by the page's policy (${effectiveDirective}): ${blocked}.${hint}`);
}

export function listenForProblems(insertions: readonly Insertion[]): void {
  // An error of a script is reported to the window, a file that does not load to its element.
  const handle = (event: Event): void => {
    if (event.target instanceof Element) reportMissingFile(event.target);
    else if (event instanceof ErrorEvent) reportScriptError(event, insertions);
  };
  addEventListener("error", handle, true);
  addEventListener("unhandledrejection", reportRejection);
  document.addEventListener("securitypolicyviolation", reportViolation);
}
