"""The generated parts of the documents: tables that are printed from the code.

`python -m tests.test_docs --write` writes them into the documents; `tests/test_docs.py` checks that they are
current.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer.main
from prometheus_client.metrics import MetricWrapperBase

from easel import errors, settings, settings_oauth
from easel.cli import app as cli
from easel.core.access import Access, InAccount, OfHost, Public
from easel.core.principal import PrincipalKind
from easel.core.run.status import MOVES, TERMINAL, Status
from easel.core.stream.envelope import EVENT_TYPES, EventType
from easel.core.validation import MAX_DEPTH
from easel.core.web.hosts import FETCH
from easel.edges.decoding import NoParams
from easel.edges.http.routes import ROUTES, describe_api
from easel.errors import HostError
from easel.fetch.tool import FetchTool
from easel.host import metrics
from easel.host.boards import tools as board_tools
from easel.host.canvases import agent_tools as canvas_tools
from easel.host.documents import definitions as document_tools
from easel.host.tools.native import native_tools
from easel.sandbox import definitions as machine
from tests import spec_reference
from tests.spec_reference import GROUPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from easel.core.tool.definition import ToolDefinition
    from easel.edges.http.calls import Row

PROJECT = Path(__file__).resolve().parent.parent
README = PROJECT / "README.md"
NOTHING = "–"


def documents() -> list[Path]:
    return sorted([*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md")])


def name_of(path: Path) -> str:
    return str(path.relative_to(PROJECT))


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |"
        for line in lines
    )


def code(text: object) -> str:
    return f"`{text}`"


def plain(value: object) -> str:
    """Return a default as a user would write it."""
    if isinstance(value, bool):
        return code("yes" if value else "no")
    return code(f"{value:g}" if isinstance(value, float) else value) if value != "" else "empty"


def settings_table() -> str:
    kinds = {"str": "text", "int": "whole number", "float": "number", "bool": "yes or no"}
    rows = [
        (code(row.variable), kinds[type(row.default).__name__], plain(row.default), row.description)
        for row in settings.rows()
    ] + [
        (code(settings_oauth.FAMILY + name), "text", "empty", part.description)
        for name, part in settings_oauth.PARTS.items()
    ]
    return table(["variable", "type", "default", "description"], rows)


def all_errors(kind: type[HostError] = HostError) -> Iterator[type[HostError]]:
    for error in kind.__subclasses__():
        if error.__module__ == errors.__name__:
            yield error
            yield from all_errors(error)


def errors_table() -> str:
    rows = [
        (
            code(error.code),
            str(error.http),
            str(error.gateway),
            str(error.rpc),
            inspect.cleandoc(error.__doc__ or "").split("\n\n")[0],
        )
        for error in sorted(all_errors(), key=lambda error: (error.http, error.code))
    ]
    return table(["name", "HTTP", "code", "JSON-RPC", "message"], rows)


def fields_of(row: EventType) -> str:
    """Return the fields of `data` but those that `seal()` adds, with `?` after optional ones."""
    fields = sorted(msgspec.structs.fields(row.payload), key=lambda field: field.required, reverse=True)
    return ", ".join(
        code(field.encode_name + ("" if field.required else "?"))
        for field in fields
        if field.encode_name not in ("visibility", "provenance")
    )


def events_table() -> str:
    rows = [
        (code(row.name), row.stream.value, row.visibility.value, code(row.payload.__name__), fields_of(row))
        for row in EVENT_TYPES.values()
    ]
    return table(["type", "stream", "visibility", "payload", "fields of `data`"], rows)


def payloads() -> str:
    """Return a table for every payload of an event, and for the structs in them."""
    shapes = dict.fromkeys(row.payload for row in EVENT_TYPES.values())
    _, schemas = msgspec.json.schema_components(shapes, ref_template="#/{name}")
    return "\n\n".join(
        f"### `{name}`\n\n"
        + fields_table(
            (field, part, field in schema["required"])
            for field, part in schema["properties"].items()
            if field not in ("visibility", "provenance")
        )
        for name, schema in schemas.items()
    )


def access_of(access: Access) -> str:
    """Return who has the access: a role in the account, or an operator; `in person` if no program has it."""
    match access:
        case Public():
            return "anyone"
        case InAccount(role, kinds):
            who = role.value
        case OfHost(kinds):
            who = "operator"
    return who if PrincipalKind.SERVICE in kinds else f"{who} in person"


def response_of(row: Row) -> str:
    return f"{row.status} " + code(row.response if isinstance(row.response, str) else row.response.__name__)


def request_of(row: Row) -> str:
    if row.body is not None and row.body is not NoParams:
        return code(row.body.__name__)
    return NOTHING if row.query is None else code("?" + row.query.__name__)


def routes_table() -> str:
    rows = [
        (
            code(f"{row.method} {row.path}"),
            access_of(row.access),
            request_of(row),
            response_of(row),
            ", ".join(code(error.code) for error in row.errors) or NOTHING,
            row.summary,
        )
        for row in ROUTES
    ]
    return table(["route", "access", "request", "response", "errors", "description"], rows)


def type_of(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return code(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " or ".join(type_of(option) for option in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(code(value) for value in schema["enum"])
    if schema.get("type") == "array":
        return "list of " + type_of(schema["items"])
    bounds = [
        f"{word} {schema[key]}" for word, key in (("from", "minimum"), ("to", "maximum")) if key in schema
    ]
    return " ".join([schema.get("format") or schema.get("type") or "anything", *bounds])


def fields_table(properties: Iterable[tuple[str, dict[str, Any], bool]]) -> str:
    def note(schema: dict[str, Any]) -> str:
        default = schema.get("default")
        return " ".join([schema.get("description", ""), f"Default {default}." if default else ""]).strip()

    rows = [
        (code(name + ("" if is_required else "?")), type_of(schema), note(schema))
        for name, schema, is_required in properties
    ]
    return table(["field", "type", "note"], rows)


def structures() -> str:
    """Return a table for every body, query and response of the routes, as in /openapi.json."""
    parts: dict[str, str] = {}
    for name, schema in describe_api()["components"]["schemas"].items():
        required = schema.get("required", [])
        parts[name] = fields_table(
            (field, part, field in required)
            for field, part in schema["properties"].items()
            if field != "warnings"  # described once, at the top of the page
        )
    for row in ROUTES:
        if row.query is not None:
            described = describe_api()["paths"][row.path][row.method.lower()]["parameters"]
            parts["?" + row.query.__name__] = fields_table(
                (parameter["name"], parameter["schema"], False)
                for parameter in described
                if parameter["in"] == "query"
            )
    return "\n\n".join(f"### `{name}`\n\n{text}" for name, text in parts.items())


def native_definitions() -> list[ToolDefinition]:
    """Return the tools that every Easel has."""
    on_boards = (
        board_tools.WHITEBOARD_READ,
        board_tools.WHITEBOARD_WRITE,
        board_tools.BLACKBOARD_READ,
        board_tools.BLACKBOARD_WRITE,
    )
    own = [*(tool.definition for tool in native_tools()), *on_boards, canvas_tools.CANVAS, canvas_tools.LOGS]
    return [*own, *document_tools.definitions().values()]


def machine_tools() -> Sequence[ToolDefinition]:
    fetch = FetchTool([], [], max_body_bytes=0).definition
    return [*machine.definitions("local", has_shell=True, network=False), fetch]


def argument_names(tool: ToolDefinition) -> list[str]:
    """Return the arguments of a tool, with `?` after optional ones."""
    required = tool.schema.get("required", ())
    return [code(name if name in required else f"{name}?") for name in tool.schema["properties"]]


def tools_table() -> str:
    """Return all tools with the first sentence of each; the reference has the full descriptions."""
    rows = [
        (
            f"[`{tool.name}`](../reference/tools.md#{tool.name.lower()})",
            ", ".join(argument_names(tool)) or NOTHING,
            re.split(r"(?<=[^.]\.) (?=[A-Z`])", tool.description)[0],
        )
        for tool in (*native_definitions(), *machine_tools())
    ]
    return table(["tool", "arguments", "description"], rows)


def argument_type(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(code(value) for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(argument_type(option) for option in schema["anyOf"])
    if schema.get("type") == "array":
        return "list of " + argument_type(schema.get("items", {}))
    kind = schema.get("type", "anything")
    bounds = [
        f"{word} {schema[key]}"
        for word, key in (("from", "minimum"), ("to", "maximum"), ("at least", "minLength"))
        if key in schema
    ]
    inner = (
        f" of {argument_type(schema['additionalProperties'])}"
        if isinstance(schema.get("additionalProperties"), dict)
        else ""
    )
    members = (
        f" with {', '.join(code(name) for name in schema['properties'])}"
        if kind == "object" and schema.get("properties")
        else ""
    )
    default = [f"(default {schema['default']})"] if "default" in schema else []
    return " ".join([f"{kind}{inner}{members}", *bounds, *default])


def tool_sections() -> str:
    parts: list[str] = []
    for tool in (*native_definitions(), *machine_tools()):
        confirmation = (
            "Only an agent in a run can call it."
            if tool.name.startswith("canvas_")
            else "An action that calls it with a literal `GET` or `HEAD` needs no confirmation."
            if tool.name == FETCH
            else "Read-only: an action that calls it needs no confirmation."
            if tool.read_only
            else "Not read-only: an action that calls it needs confirmation, unless it declares otherwise."
        )
        schemas = tool.schema["properties"].values()
        rows = [
            (name, argument_type(schema), schema.get("description", ""))
            for name, schema in zip(argument_names(tool), schemas, strict=True)
        ]
        parts.append(f"### `{tool.name}`\n\n{tool.description}\n\n{confirmation}")
        parts += [table(["argument", "type", "note"], rows)] if rows else []
    return "\n\n".join(parts)


def spec_text() -> str:
    limits = spec_reference.DEFAULT_LIMITS
    parts = [
        f"A spec without its state must have at most {limits.spec_bytes:,} bytes "
        f"and {MAX_DEPTH} levels of nesting."
    ]
    for place, (heading, members) in GROUPS.items():
        rows = [
            (
                code(member.name),
                member.type,
                spec_reference.format_default(member),
                spec_reference.format_value(member.example),
                member.description,
            )
            for member in members
        ]
        level = "##" if place in ("", "toolPolicy", "action", "refresh") else "###"
        members_table = table(["member", "type", "default", "example", "description"], rows)
        parts.append(f"{level} {heading}\n\n{members_table}")
    return "\n\n".join(parts)


def machine_table() -> str:
    rows = [(code(tool.name), ", ".join(argument_names(tool)), tool.description) for tool in machine_tools()]
    return table(["tool", "arguments", "description"], rows)


def commands() -> dict[str, Callable[..., Any]]:
    """Return the commands by name, those of a group with its name before them: `audit verify`."""
    groups = [
        ("", cli.app),
        *((f"{group.name} ", group.typer_instance) for group in cli.app.registered_groups),
    ]
    return {
        prefix + (command.name or command.callback.__name__): command.callback
        for prefix, app in groups
        if app is not None
        for command in app.registered_commands
        if command.callback
    }


def parameters_of(name: str) -> Sequence[Any]:
    command: Any = typer.main.get_command(cli.app)
    for word in name.split():
        command = command.commands[word]
    return command.params


def commands_text() -> str:
    """Return a section for every command, with its arguments and defaults as in `--help`."""
    parts: list[str] = []
    for name, command in commands().items():
        parameters = parameters_of(name)
        arguments = [each for each in parameters if each.param_type_name == "argument"]
        options = [each for each in parameters if each.param_type_name == "option"]
        usage = " ".join(
            [
                "easel",
                name,
                *(argument.metavar or argument.name for argument in arguments),
                *(["[OPTIONS]"] if options else []),
            ]
        )
        parts.append(f"### `easel {name}`\n\n```\n{usage}\n```\n\n{inspect.getdoc(command) or ''}")
        rows = [
            (code(argument.metavar or argument.name), NOTHING, argument.help or "") for argument in arguments
        ]
        for option in options:
            shown = code(option.opts[0] if option.is_flag else f"{option.opts[0]} {option.metavar}")
            default = (
                "required"
                if option.required
                else NOTHING
                if option.is_flag or option.default is None
                else code(option.default)
            )
            rows.append((shown, default, option.help or ""))
        parts += [table(["option", "default", "description"], rows)] if rows else []
    return "\n\n".join(parts)


def metrics_table() -> str:
    rows: list[tuple[str, ...]] = []
    for metric in vars(metrics).values():
        if isinstance(metric, MetricWrapperBase):
            [described] = metric.describe()
            name = described.name + ("_total" if described.type == "counter" else "")
            labels = ", ".join(code(label) for label in metric._labelnames) or NOTHING
            rows.append((code(name), described.type, labels, described.documentation))
    return table(["metric", "type", "labels", "description"], rows)


def run_diagram() -> str:
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> queued"]
    lines += [
        f"    {start.value} --> {end.value}: {move.value}"
        for start, moves in MOVES.items()
        for move, end in moves.items()
    ]
    lines += [f"    {status.value} --> [*]" for status in Status if status in TERMINAL]
    return "\n".join([*lines, "```"])


GENERATED: dict[str, tuple[str, Callable[[], str]]] = {
    # part: its document, and the function that prints it
    "settings": ("docs/reference/settings.md", settings_table),
    "errors": ("docs/reference/errors.md", errors_table),
    "events": ("docs/reference/events.md", events_table),
    "payloads": ("docs/reference/events.md", payloads),
    "routes": ("docs/reference/http.md", routes_table),
    "shapes": ("docs/reference/http.md", structures),
    "verbs": ("docs/reference/cli.md", commands_text),
    "metrics": ("docs/guide/operate.md", metrics_table),
    "life": ("docs/guide/runs.md", run_diagram),
    "tools": ("docs/guide/runs.md", tools_table),
    "machine": ("docs/guide/sandbox.md", machine_table),
    "tool_shapes": ("docs/reference/tools.md", tool_sections),
    "spec": ("docs/reference/spec.md", spec_text),
}
PART = re.compile(r"(<!-- generated: (\w+) -->\n)(.*?)(<!-- end of generated -->)", re.DOTALL)


def refresh(text: str) -> str:
    """Return the document with current generated parts."""
    return PART.sub(lambda part: f"{part[1]}\n{GENERATED[part[2]][1]()}\n\n{part[4]}", text)


def parts_of(text: str) -> dict[str, str]:
    return {part[2]: part[3].strip() for part in PART.finditer(text)}
