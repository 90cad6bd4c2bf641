// Printed by `make types` from the tables of Easel; `tests/test_wire_types.py` compares it.

import type { AllMethods, EventType, LoggedEvent, Methods } from "./wire";

declare function send(method: string, params: unknown): Promise<unknown>;

export async function call<M extends keyof AllMethods>(
  method: M,
  params: AllMethods[M]["params"],
): Promise<AllMethods[M]["result"]> {
  // The answer has the type that the table of methods names for this method.
  return (await send(method, params)) as AllMethods[M]["result"];
}

/** Methods over HTTP are those that need no connection. */
export const overHttp: keyof Methods = "canvas.get";

export const calls: {
  [M in keyof AllMethods]: (params: AllMethods[M]["params"]) =>
    Promise<AllMethods[M]["result"]>;
} = {
  "canvas.list": (params) => call("canvas.list", params),
  "canvas.get": (params) => call("canvas.get", params),
  "canvas.create": (params) => call("canvas.create", params),
  "canvas.upsert": (params) => call("canvas.upsert", params),
  "canvas.patch": (params) => call("canvas.patch", params),
  "canvas.delete": (params) => call("canvas.delete", params),
  "canvas.action": (params) => call("canvas.action", params),
  "canvas.confirm": (params) => call("canvas.confirm", params),
  "canvas.cancel": (params) => call("canvas.cancel", params),
  "canvas.accept": (params) => call("canvas.accept", params),
  "canvas.confirmations": (params) => call("canvas.confirmations", params),
  "canvas.records": (params) => call("canvas.records", params),
  "canvas.versions": (params) => call("canvas.versions", params),
  "canvas.restore": (params) => call("canvas.restore", params),
  "canvas.input": (params) => call("canvas.input", params),
  "canvas.report": (params) => call("canvas.report", params),
  "canvas.open": (params) => call("canvas.open", params),
  "canvas.close": (params) => call("canvas.close", params),
  "canvas.subscribe": (params) => call("canvas.subscribe", params),
  "canvas.unsubscribe": (params) => call("canvas.unsubscribe", params),
  "canvas.asset.put": (params) => call("canvas.asset.put", params),
  "canvas.asset.get": (params) => call("canvas.asset.get", params),
  "canvas.asset.list": (params) => call("canvas.asset.list", params),
  "canvas.asset.delete": (params) => call("canvas.asset.delete", params),
  "tools.list": (params) => call("tools.list", params),
  "tool.invoke": (params) => call("tool.invoke", params),
  "nodes.list": (params) => call("nodes.list", params),
  "ping": (params) => call("ping", params),
  "connect": (params) => call("connect", params),
  "tool.result": (params) => call("tool.result", params),
  "tool.progress": (params) => call("tool.progress", params),
};

export function describe(event: LoggedEvent): string | number | object | null {
  switch (event.type) {
    case "message.delta":
      return event.data.message_id;
    case "message.completed":
      return event.data.role;
    case "tool.call":
      return event.data.call_id;
    case "tool.result":
      return event.data.call_id;
    case "reasoning.delta":
      return event.data.message_id;
    case "step.completed":
      return event.data.step;
    case "run.start":
      return event.data.attempt;
    case "run.status":
      return event.data.status;
    case "whiteboard.write":
      return event.data.key;
    case "blackboard.write":
      return event.data.key;
    case "done":
      return event.data.status;
    case "canvas.created":
      return event.data.title;
    case "canvas.updated":
      return event.data.changedPaths;
    case "canvas.view.updated":
      return event.data.viewId;
    case "canvas.snapshot":
      return event.data.artifact_id;
    case "canvas.action.asked":
      return event.data.actionId;
    case "canvas.action.started":
      return event.data.actionId;
    case "canvas.action.output":
      return event.data.actionId;
    case "canvas.action.finished":
      return event.data.actionId;
    case "canvas.action.failed":
      return event.data.actionId;
    case "canvas.action.refused":
      return event.data.actionId;
    case "canvas.refresh.failed":
      return event.data.refreshId;
    case "canvas.refresh.recovered":
      return event.data.refreshId;
    case "canvas.document.changed":
      return event.data.revision_id;
    case "canvas.lease.changed":
      return event.data.canvas_epoch;
    case "session.created":
      return event.data.session_id;
    case "session.renamed":
      return event.data.session_id;
    case "session.removed":
      return event.data.session_id;
    default: {
      const rest: never = event;
      return rest;
    }
  }
}

export const first: EventType = "message.delta";
