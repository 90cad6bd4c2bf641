// The SDK of canvas pages: starts its parts, in the order in which they listen to events.
//
// It is the first script of a page. It runs in a sandboxed frame, without a sign-in and without a network.

import { listenForActions } from "./actions";
import { defineApi } from "./api";
import { observePage, render } from "./bindings";
import { connect, handlers, send, takeInitialState } from "./bridge";
import { listenForEntries } from "./entries";
import type { Notice } from "./messages";
import { allSaved, findConflict, setConnected } from "./models";
import { listenForProblems, parseInsertions } from "./reports";
import { followSelection } from "./row_order";
import { addStyles } from "./writers";

/** Remove APIs that connect in spite of every other policy, in browsers without `Connection-Allowlist`. */
function removeConnections(): void {
  for (const name of ["RTCPeerConnection", "webkitRTCPeerConnection", "WebTransport"]) {
    if (name in window) Object.defineProperty(window, name, { value: undefined });
  }
}

// The element that had the focus: a browser forgets it while a dialog covers the page.
let lastFocus: EventTarget | null = null;

function followFocus(): void {
  const remember = ({ target }: FocusEvent): void => {
    lastFocus = target;
  };
  document.addEventListener("focusin", remember, true);
}

function restoreFocus(): void {
  const element = lastFocus;
  if (document.activeElement !== document.body) return;
  if (!(element instanceof HTMLElement || element instanceof SVGElement)) return;
  if (element.isConnected) element.focus({ preventScroll: true });
}

function handleNotice(notice: Notice): void {
  switch (notice.kind) {
    case "resolve":
      findConflict(notice.pointer)?.resolve(notice.keep);
      break;
    case "ping":
      send("pong");
      break;
    case "link":
      setConnected(notice.isLive);
      break;
    case "focus":
      restoreFocus();
      break;
    case "leaving":
      allSaved()
        .catch(() => {})
        .then(() => send("idle"));
      break;
    default:
      notice satisfies never; // a newer shell may send more
  }
}

connect();
addStyles();
listenForEntries();
followSelection();
listenForActions();
observePage();
handlers.render = render;
defineApi();
removeConnections();
listenForProblems(parseInsertions(document.currentScript?.dataset.shifts ?? ""));
followFocus();
handlers.notice = handleNotice;
takeInitialState();
