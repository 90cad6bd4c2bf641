"""TypeScript's types of everything on Easel's wire, printed from the same tables that serve it.

`make types` writes `web/src/wire.d.ts`, and `web/src/wire.check.ts`, which uses every method and every event
type through them. `tests/test_wire_types.py` fails when either is stale.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from easel.core.stream.envelope import EVENT_TYPES
from easel.edges.decoding import NoParams
from easel.edges.errors import ErrorDetail
from easel.edges.gateway import frames
from easel.edges.http.chat_frames import ChatNotice, ChatRequest
from easel.edges.http.routes import API, Row
from easel.edges.http.wire import ErrorAnswer
from easel.edges.methods import CONNECTION_METHODS, METHODS
from easel.errors import HostError

WEB = Path(__file__).resolve().parent.parent / "web" / "src"
HEAD = "// Printed by `make types` from the tables of Easel; `tests/test_wire_types.py` compares it.\n"
Schema = Mapping[str, Any]

COMMON = """\
/** Any JSON value. */
export type Json = null | boolean | number | string | Json[] | { [member: string]: Json };

/** A JSON object, such as the spec or the state of a canvas. */
export type JsonObject = { [member: string]: Json };

/** A value of any media type but JSON. */
export type Bytes = unknown;
"""
ENVELOPE = """\
/** The types of logged events, each with its `data`. */
export type EventType = keyof Events;

/** An event of a log, as every stream and the chat send it. */
export interface EventOf<T extends EventType> {
  seq: number;
  type: T;
  /** Time in ISO 8601. */
  ts: string;
  data: Events[T];
}

export type LoggedEvent = { [T in EventType]: EventOf<T> }[EventType];

/** The frame of an event of a canvas's log on the gateway. */
export type EventFrame = {
  [T in EventType]: { type: "evt"; event: T; payload: Events[T]; seq: number };
}[EventType];

/** The frame of a notice on the gateway: it is not logged, and has no `seq`. */
export type NoticeFrame = {
  [N in keyof Notices]: { type: "evt"; event: N; payload: Notices[N] };
}[keyof Notices];

/** A request on the gateway. */
export type RequestFrame = {
  [M in keyof AllMethods]: { type: "req"; id: string; method: M; params: AllMethods[M]["params"] };
}[keyof AllMethods];

/** The frame of an answer on the gateway, to a request of the method `M`. */
export type AnswerFrame<M extends keyof AllMethods> =
  | { type: "res"; id: string; ok: true; payload: AllMethods[M]["result"] }
  | { type: "res"; id: string | null; ok: false; error: RefusedRequest };

/** Every method of the gateway. */
export interface AllMethods extends Methods, ConnectionMethods {}

/** What the chat sends. */
export type ChatFrame = LoggedEvent | ChatNotice;
"""
OPENING = """\
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
"""


# --- types --------------------------------------------------------------------------------------------------


def to_type(schema: Schema) -> str:
    """Return the TypeScript type of a JSON schema."""
    if "$ref" in schema:
        return schema["$ref"]
    if "enum" in schema:
        return " | ".join(f'"{value}"' for value in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(to_type(option) for option in schema["anyOf"]))
    match schema.get("type"):
        case "array":
            inner = to_type(schema.get("items", {}))
            return f"({inner})[]" if "|" in inner else f"{inner}[]"
        case "object" if "additionalProperties" in schema:
            return f"Record<string, {to_type(schema['additionalProperties'])}>"
        case "object":
            return "JsonObject"
        case "string" | "boolean" | "null" as name:
            return name
        case "integer" | "number":
            return "number"
        case None:
            return "Json"
        case other:
            raise ValueError(f"no TypeScript type for {other}")


def comment(text: str, indent: str = "") -> str:
    return f"{indent}/** {' '.join(text.split())} */\n" if text else ""


def member(name: str, schema: Schema, *, is_required: bool) -> str:
    mark = "" if is_required else "?"
    return f"{comment(schema.get('description', ''), '  ')}  {name}{mark}: {to_type(schema)};\n"


def declaration(name: str, schema: Schema) -> str:
    """Return the declaration of a struct or an enum."""
    opening = comment(schema.get("description", ""))
    if "properties" not in schema:
        return f"{opening}export type {name} = {to_type(schema)};\n"
    members = "".join(
        member(each, part, is_required=each in schema["required"])
        for each, part in schema["properties"].items()
    )
    return f"{opening}export interface {name} {{\n{members}}}\n"


class Components:
    """The types of all structs on the wire, by the shape that the tables name."""

    def __init__(self, shapes: Iterable[Any]) -> None:
        unique = list(dict.fromkeys(shapes))
        schemas, self.schemas = msgspec.json.schema_components(unique, ref_template="{name}")
        self._types = {shape: to_type(schema) for shape, schema in zip(unique, schemas, strict=True)}

    def name(self, shape: Any) -> str:
        return "Record<string, never>" if shape in (None, NoParams) else self._types[shape]

    def table(self, name: str, note: str, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
        """Return an interface with a member for every row; a row of one shape is that shape."""
        body = "".join(f'  "{key}": {self._row(shapes)};\n' for key, shapes in rows)
        return f"{comment(note)}export interface {name} {{\n{body}}}\n"

    def _row(self, shapes: Mapping[str, Any]) -> str:
        if set(shapes) == {""}:
            return self.name(shapes[""])
        return "{ " + "; ".join(f"{part}: {self.name(shape)}" for part, shape in shapes.items()) + " }"


# --- the tables ---------------------------------------------------------------------------------------------


def json_routes() -> list[Row]:
    return [row for row in API if row.path != "/api/rpc"]


def all_shapes() -> Iterator[Any]:
    for method in (*METHODS.values(), *CONNECTION_METHODS.values()):
        yield from (method.params, method.result)
    yield from (row.payload for row in EVENT_TYPES.values())
    yield from frames.NOTICES.values()
    yield from (ErrorDetail, ErrorAnswer, frames.RefusedRequest, ChatRequest, ChatNotice)
    for row in json_routes():
        yield from (shape for shape in (row.body, row.query, row.response) if isinstance(shape, type))


def routes(components: Components) -> str:
    lines = ["/** The routes of the HTTP API, by method and path. `warnings` may be in any JSON answer. */"]
    lines.append("export interface Routes {")
    for row in json_routes():
        path = "; ".join(f"{name}: string" for name in re.findall(r"\{(\w+)\}", row.path))
        parts = [
            f"path: {{ {path} }}" if path else "path: Record<string, never>",
            f"query: {components.name(row.query)}",
            f"body: {'Bytes' if row.takes_file else components.name(row.body)}",
            f"status: {row.status}",
            f"response: {response_type(row, components)}",
        ]
        lines += [f"  /** {row.summary} */", f'  "{row.method} {row.path}": {{ {"; ".join(parts)} }};']
    return "\n".join([*lines, "}", ""])


def response_type(row: Row, components: Components) -> str:
    if not isinstance(row.response, str):
        return f"{components.name(row.response)} & {{ warnings?: string[] }}"
    if row.status == 204:
        return "undefined"
    if row.response == "application/json":
        return "JsonObject"
    return "string" if row.response.startswith("text/") else "Bytes"


def errors() -> str:
    kinds = sorted(HostError.__subclasses__(), key=lambda kind: kind.code)
    body = "".join(f"  {kind.code}: {kind.gateway};\n" for kind in kinds)
    note = "The closed set of errors: the code of each name. `name` of an error is one of them."
    return f"{comment(note)}export interface Errors {{\n{body}}}\n\nexport type ErrorName = keyof Errors;\n"


def render_types() -> str:
    components = Components(all_shapes())
    structs = [declaration(name, schema) for name, schema in components.schemas.items()]
    anywhere = {name: row for name, row in METHODS.items() if not row.needs_socket}
    on_sockets = {**METHODS, **CONNECTION_METHODS}
    for name in anywhere:
        del on_sockets[name]
    methods = [
        components.table(
            name, note, ((key, {"params": row.params, "result": row.result}) for key, row in rows)
        )
        for name, note, rows in (
            ("Methods", "The methods of the gateway, also over HTTP by `POST /api/rpc`.", anywhere.items()),
            ("ConnectionMethods", "The methods of the WebSocket alone.", on_sockets.items()),
        )
    ]
    events = components.table(
        "Events",
        "The payload of every event type.",
        ((row.name, {"": row.payload}) for row in EVENT_TYPES.values()),
    )
    notices = components.table(
        "Notices", "The gateway's notices.", ((name, {"": shape}) for name, shape in frames.NOTICES.items())
    )
    aliases = "".join(
        f"export type {name} = {components.name(shape)};\n\n"
        for name, shape in (("ChatRequest", ChatRequest), ("ChatNotice", ChatNotice))
    )
    parts = [COMMON, *methods, events, notices, aliases + ENVELOPE, routes(components), errors(), *structs]
    return "\n".join([HEAD, *parts])


# --- the check ----------------------------------------------------------------------------------------------


def render_check() -> str:
    """Return TypeScript that uses every method and every event type."""
    calls = "".join(
        f'  "{name}": (params) => call("{name}", params),\n' for name in (*METHODS, *CONNECTION_METHODS)
    )
    cases = "".join(
        f'    case "{row.name}":\n      return event.data.{required_member(row.payload)};\n'
        for row in EVENT_TYPES.values()
    )
    return "\n".join(
        [
            HEAD,
            OPENING,
            "export const calls: {\n"
            '  [M in keyof AllMethods]: (params: AllMethods[M]["params"]) =>\n'
            '    Promise<AllMethods[M]["result"]>;\n'
            "} = {\n" + calls + "};\n",
            "export function describe(event: LoggedEvent): string | number | object | null {\n"
            "  switch (event.type) {\n" + cases + "    default: {\n"
            "      const rest: never = event;\n      return rest;\n    }\n  }\n}\n",
            'export const first: EventType = "message.delta";\n',
        ]
    )


def required_member(payload: type[Any]) -> str:
    """Return the first member of its own that a payload always has."""
    names = [field.encode_name for field in msgspec.structs.fields(payload) if field.required]
    own = [name for name in names if name not in ("visibility", "provenance", "canvasId", "revision")]
    return own[0]


FILES = {"wire.d.ts": render_types, "wire.check.ts": render_check}


def main() -> int:
    for name, render in FILES.items():
        (WEB / name).write_text(render(), encoding="utf-8")
        print(f"wrote {(WEB / name).relative_to(WEB.parent.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
