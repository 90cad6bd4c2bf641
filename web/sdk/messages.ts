// The messages between a page and the shell around it. The shell's end, `canvas_bridge.js`, checks them.

import type { Parts } from "./paths";

/** The parts of the canvas's spec that a page needs. */
export interface PageInfo {
  readonly actions: readonly string[];
  readonly bindings: Readonly<Record<string, string>>;
  readonly writable: readonly Parts[];
  readonly saves: readonly Parts[];
}

export interface ActionStatus {
  readonly eventId: string;
  readonly status: "asked" | "running" | "completed" | "failed" | "refused";
  readonly at?: string;
  readonly error?: string;
  readonly errorName?: string;
  readonly output?: string;
}

export interface RefreshFailure {
  readonly actionId: string;
  readonly failures: number;
  readonly error?: string;
  readonly nextAt: number;
}

/** The canvas as the shell knows it. A message has only the members that changed. */
export interface CanvasUpdate {
  readonly state?: unknown;
  readonly revision?: number;
  readonly info?: PageInfo;
  readonly statuses?: Readonly<Record<string, ActionStatus>>;
  readonly refreshes?: Readonly<Record<string, RefreshFailure>>;
}

export interface Refusal {
  readonly message: string;
  readonly code: number;
  readonly name: string;
  readonly details?: unknown;
}

export type Answer =
  | { readonly kind: "answer"; readonly id: string; readonly ok: true; readonly payload: unknown }
  | { readonly kind: "answer"; readonly id: string; readonly ok: false; readonly error: Refusal };

/** A message about this document of the frame, which any module may handle. */
export type Notice =
  | { readonly kind: "resolve"; readonly pointer: string; readonly keep: "mine" | "theirs" }
  | { readonly kind: "link"; readonly isLive: boolean }
  | { readonly kind: "ping" | "focus" | "leaving" };

interface Sealed {
  readonly gsv: 1;
  readonly nonce: string;
}

export type ShellMessage =
  | (Sealed & CanvasUpdate & { readonly kind: "welcome" | "state" })
  | (Sealed & Answer)
  | (Sealed & Notice);

export type PageMessageKind = "hello" | "problem" | "broken" | "idle" | "pong" | RequestKind;
export type RequestKind = "action" | "cancel" | "input";
