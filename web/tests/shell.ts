import { vi } from "vitest";
import type { CanvasUpdate, Notice, Refusal } from "../sdk/messages";

interface PageMessage {
  readonly kind: string;
  readonly nonce: string | null;
  readonly [member: string]: unknown;
}

const NONCE = "n-1";

/** The shell's end of the bridge, in place of the window around the page. */
export class Shell {
  readonly received: PageMessage[] = [];

  constructor() {
    vi.stubGlobal("parent", { postMessage: (message: PageMessage) => this.received.push(message) });
  }

  /** Return the messages of a kind since the last call, and forget the others. */
  take(kind: string): PageMessage[] {
    return this.received.splice(0).filter((message) => message.kind === kind);
  }

  send(message: object, { source, nonce = NONCE }: { source?: unknown; nonce?: string } = {}): void {
    const event = new MessageEvent("message", { data: { gsv: 1, nonce, ...message } });
    Object.defineProperty(event, "source", { value: source ?? parent });
    dispatchEvent(event);
  }

  notify(notice: Notice): void {
    this.send(notice);
  }

  welcome(update: CanvasUpdate): void {
    this.send({ kind: "welcome", ...update });
  }

  show(state: unknown, revision: number): void {
    this.send({ kind: "state", state, revision });
  }

  accept(id: unknown, payload: unknown = {}): void {
    this.send({ kind: "answer", id, ok: true, payload });
  }

  refuse(id: unknown, name: string): void {
    const error: Refusal = { code: 409, name, message: `refused: ${name}` };
    this.send({ kind: "answer", id, ok: false, error });
  }
}
