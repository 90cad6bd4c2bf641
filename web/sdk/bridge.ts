// The page's end of the bridge to the shell. The page has no sign-in and no network: the bridge is its only
// connection.
//
// Owns the latest state and the pending requests. Knows no element of the page.

import type {
  ActionStatus,
  Answer,
  CanvasUpdate,
  Notice,
  PageInfo,
  PageMessageKind,
  RefreshFailure,
  Refusal,
  RequestKind,
  ShellMessage,
} from "./messages";
import { deepFreeze, isContainer } from "./values";

export const MAX_PROBLEMS = 50;

export type StateListener = (state: unknown) => void;

interface Known {
  state: unknown;
  revision: number;
  info: PageInfo | null;
  statuses: Readonly<Record<string, ActionStatus>>;
  refreshes: Readonly<Record<string, RefreshFailure>>;
}

export const known: Known = { state: deepFreeze({}), revision: -1, info: null, statuses: {}, refreshes: {} };

/** Functions of the modules that draw the page, which the bridge calls. */
export const handlers = {
  /** Draws the page after any change of what it shows. */
  render: (): void => {},
  notice: (_: Notice): void => {},
};

interface Settlers {
  readonly resolve: (payload: unknown) => void;
  readonly reject: (problem: RequestRefused) => void;
}

const listeners = new Set<StateListener>();
const pending = new Map<string, Settlers>(); // by request id
const queued: [PageMessageKind, object][] = []; // messages to send after the shell's welcome
const reported = new Set<string>();
let nonce: string | null = null;
let requestCount = 0;

export function send(kind: PageMessageKind, members: object = {}): void {
  if (nonce === null && kind !== "hello") queued.push([kind, members]);
  // The target can be "*": only our shell may frame this page.
  else if (parent !== window) parent.postMessage({ gsv: 1, nonce, kind, ...members }, "*");
}

/** Send a request and return the promise of its answer. */
export function request(kind: RequestKind, members: object): Promise<unknown> {
  requestCount += 1;
  const id = `${kind}-${requestCount}`;
  return new Promise((resolve, reject) => {
    pending.set(id, { resolve, reject });
    send(kind, { id, ...members });
  });
}

/** Report a problem to the page's author, each one once. */
export function reportProblem(place: string, message: string): void {
  const key = `${place}\n${message}`;
  if (reported.has(key) || reported.size >= MAX_PROBLEMS) return;
  reported.add(key);
  send("problem", { place: place.slice(0, 300), message: message.slice(0, 1000) });
}

export class RequestRefused extends Error {
  readonly code: number;
  readonly details: unknown;

  constructor({ message, code, name, details }: Refusal) {
    super(message);
    this.code = code;
    this.name = name;
    this.details = details;
  }
}

/** Call a function now and after every change of the state. Returns a function that ends the subscription. */
export function subscribe(listener: StateListener): () => boolean {
  listeners.add(listener);
  if (known.revision >= 0) callListener(listener);
  return () => listeners.delete(listener);
}

function callListener(listener: StateListener): void {
  try {
    listener(known.state);
  } catch (problem) {
    reportError(problem);
  }
}

export function update({ state, revision, info, statuses, refreshes }: CanvasUpdate): void {
  if (info) known.info = info;
  if (statuses) {
    Object.assign(known, { statuses, refreshes });
    dispatchStatuses();
  }
  const isNew = state !== undefined && revision !== undefined && revision >= known.revision;
  if (isNew) Object.assign(known, { state: deepFreeze(state), revision });
  handlers.render();
  if (isNew) for (const listener of [...listeners]) callListener(listener);
}

/** Dispatch the statuses of actions and failing jobs; again after the page has loaded, for late listeners. */
function dispatchStatuses(): void {
  document.dispatchEvent(new CustomEvent("gsv:status", { detail: known.statuses }));
  document.dispatchEvent(new CustomEvent("gsv:refresh", { detail: known.refreshes }));
}

// Our own code builds the messages of the shell and the frame's name: their members are as declared.
const isShellMessage = (data: unknown): data is ShellMessage => isContainer(data) && data.gsv === 1;
const isFirstUpdate = (data: unknown): data is CanvasUpdate => isContainer(data) && data.gsv === 1;

function receive({ source, data }: MessageEvent<unknown>): void {
  if (source !== parent || !isShellMessage(data)) return;
  if (data.kind === "welcome") nonce = data.nonce;
  if (data.nonce !== nonce) return;
  switch (data.kind) {
    case "welcome":
      update(data);
      for (const [kind, members] of queued.splice(0)) send(kind, members);
      break;
    case "state":
      update(data);
      break;
    case "answer":
      settle(data);
      break;
    default:
      handlers.notice(data);
  }
}

function settle(answer: Answer): void {
  const waiting = pending.get(answer.id);
  pending.delete(answer.id);
  if (answer.ok) waiting?.resolve(answer.payload);
  else waiting?.reject(new RequestRefused(answer.error));
}

export function connect(): void {
  document.addEventListener("DOMContentLoaded", dispatchStatuses);
  addEventListener("message", receive);
}

/**
 * Take the first state, which the shell passes in the frame's name: scripts have it before the first message
 * arrives.
 */
export function takeInitialState(): void {
  try {
    const initial: unknown = JSON.parse(window.name);
    if (isFirstUpdate(initial)) update(initial);
  } catch {
    // The name is empty: the state was too large, or this is a second document in the same frame.
  }
  window.name = "";
  send("hello");
}
