"""The documents say what the code does: tables are printed from the code, and what is named exists.

Owns the generated parts of the documents. After changing a setting, an error, a route, an event type, a metric, a verb
or the life of a run, refresh them:

    .venv/bin/python -m tests.test_docs --write

Without `--write` it says which parts are stale.
"""

from __future__ import annotations

import inspect
import json
import re
import shlex
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import httpx2
import pytest
import typer.main
from prometheus_client.metrics import MetricWrapperBase

from easel import errors, settings
from easel.cli import app as cli
from easel.core.action.output import OutputChunk, output_events
from easel.core.action.transitions import (
    ActionStart,
    Rules,
    complete_execution,
    expire_confirmation,
    fail_execution,
    reject_execution,
    start_execution,
)
from easel.core.canvas.actions import Confirm
from easel.core.canvas.canvas import Canvas, CanvasSnapshot
from easel.core.canvas.events import CanvasEvents
from easel.core.canvas.execution import actor_of
from easel.core.canvas.spec import parse_spec
from easel.core.principal import THE_OWNER
from easel.core.run import boards
from easel.core.run.conversation import Step, ToolCall, ToolResult
from easel.core.run.events import RunEvents
from easel.core.run.status import MOVES, TERMINAL, Status
from easel.core.stream.envelope import EVENT_TYPES, Envelope
from easel.core.stream.json_text import to_json
from easel.core.tool.definition import ToolDefinition
from easel.core.validation import MAX_DEPTH
from easel.edges.http.calls import Access
from easel.edges.http.openapi import document
from easel.edges.http.routes import ROUTES, Row
from easel.edges.methods import METHODS
from easel.errors import ActionFailed, BadInput, HostError
from easel.host import metrics
from easel.host.boards import tools as board_tools
from easel.host.canvases import agent_tools as canvas_tools
from easel.host.tools.native import native_tools
from easel.ids import OWNER, CallId, CanvasId, MessageId, RunId, artifact_id
from easel.sandbox import definitions as machine
from tests import spec_reference
from tests.spec_reference import ABSENT, GROUPS, NEEDED
from tests.support.processes import EaselProcess, Launcher
from tests.test_architecture import machine_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

PROJECT = Path(__file__).resolve().parent.parent
README = PROJECT / "README.md"
NOTHING = "–"


def documents() -> list[Path]:
    return sorted([*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md")])


def name_of(path: Path) -> str:
    return str(path.relative_to(PROJECT))


# --- tables, printed from the code ------------------------------------------------------------------------------------


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |"
        for line in lines
    )


def code(text: object) -> str:
    return f"`{text}`"


def plain(value: object) -> str:
    """A default as its user would write it."""
    if isinstance(value, bool):
        return code("yes" if value else "no")
    return code(f"{value:g}" if isinstance(value, float) else value) if value != "" else "empty"


def settings_table() -> str:
    kinds = {"str": "text", "int": "whole number", "float": "number", "bool": "yes or no"}
    rows = [
        (code(row.variable), kinds[type(row.default).__name__], plain(row.default), row.description)
        for row in settings.rows()
    ]
    return table(["variable", "takes", "default", "what it does"], rows)


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


def sample_events() -> list[Envelope]:
    """One of every event there is; two where it can look two ways."""
    make, message = RunEvents(RunId("run_1"), agent_id="main", node_id="tool_loop"), MessageId("msg_1")
    limits = boards.BoardLimits(100, 1, 100)
    on_boards = [
        boards.BoardWriteRequest(boards.Board.WHITEBOARD, "k", 1, "n"),
        boards.BoardWriteRequest(boards.Board.BLACKBOARD, "k", 1, "n", "a-b"),
    ]
    on_canvas, picture = (
        CanvasEvents(CanvasId("cockpit"), agent_id="owner", event_id="evt_1"),
        artifact_id("0" * 64),
    )
    call = ToolCall(CallId("call_1"), "gsv__Echo", {"value": 1})
    return [
        make.start(1),
        make.delta(message, "Hello"),
        make.thought(message, "Hm"),
        make.step(1, Step("Hello", (call,))),
        make.tool_call(call),
        make.tool_result(ToolResult(call.call_id, call.tool, 1)),
        make.tool_result(ToolResult(call.call_id, call.tool, "No.", is_error=True)),
        *(
            boards.prepare(ask, limits, user_id=OWNER, run_id=RunId("run_1"), agent_id="main").event
            for ask in on_boards
        ),
        *make.end_with_message(message, "Hello", Status.COMPLETED, None),
        *make.end_with_message(message, "Hello", Status.FAILED, "No."),
        on_canvas.created(1, "Cockpit"),
        on_canvas.updated(2, ["/deploy/status"]),
        on_canvas.view_opened(2, "view_1", "browser", 1),
        on_canvas.snapshot(
            2, picture, "/api/artifacts/" + picture, media_type="image/png", size=1, sha256="0" * 64
        ),
        *action_events(),
        on_canvas.refresh_failed(
            2, {"refreshId": "poll", "actionId": "look", "error": {}, "failures": 1, "retryInMs": 2_000}
        ),
        on_canvas.refresh_recovered(2, {"refreshId": "poll", "actionId": "look"}),
    ]


def action_events() -> Iterator[Envelope]:
    """Of a canvas's actions, as the rules themselves make them."""
    principal = THE_OWNER
    actor = actor_of(principal, "browser", "client")
    echo = ToolDefinition("gsv__Echo", "", {"type": "object"}, read_only=True)
    call = {"kind": "tool.call", "tool": "gsv__Echo", "args": {"value": "x"}}
    actions = {
        "set": {"kind": "state.patch", "patch": [{"op": "add", "path": "/n", "value": 1}]},
        "say": {**call, "saveAs": "said"},
    }
    raw = {
        "version": 1,
        "toolPolicy": {"allow": ["gsv__Echo"]},
        "actions": {**actions, "ask": {**call, "confirm": "always"}},
    }
    at = datetime(2026, 1, 1, tzinfo=UTC)
    canvas = Canvas(
        user_id=principal.user_id,
        canvas_id=CanvasId("cockpit"),
        agent_id="main",
        title="Cockpit",
        owner_session_key=None,
        spec_json=to_json(raw),
        state={},
        revision=1,
        last_seq=1,
        spec_revision=1,
        is_accepted=True,
        created_at=at,
        updated_at=at,
    )
    whole, spec = CanvasSnapshot(canvas), parse_spec(raw)
    rules = Rules(
        definitions={"gsv__Echo": echo},
        floor=Confirm.NEVER,
        state_bytes=10_000,
        public_message=lambda problem: problem.message,
    )
    for action_id in actions | {"ask": None}:
        start = ActionStart(
            principal=principal,
            actor=actor,
            action_id=action_id,
            event_id="evt_1",
            owner_id="wrk_1",
            now_ms=1,
        )
        begun = start_execution(whole, spec, start, rules)
        yield from begun.change.events
        if action_id == "say":
            decide, _ = complete_execution("x", begun, principal, now_ms=2, state_bytes=10_000)
            yield from decide(whole).events
            yield from output_events(begun.execution, 1, [OutputChunk("Hello"), OutputChunk("…", is_cut=True)])
            yield from fail_execution(ActionFailed(problem="it broke"), "it broke", begun.execution, principal, 2)(
                whole
            ).events
        if action_id == "ask":
            yield from reject_execution(begun.execution, principal, owner_id="wrk_1", now_ms=2)(whole).events
            yield from expire_confirmation(begun.execution, principal, 2)(whole).events


def fields_of(event_type: str) -> str:
    """The fields of `data`, with `?` behind those that are not always there."""
    seen = [event.data for event in sample_events() if event.type == event_type]
    names = dict.fromkeys(name for data in seen for name in data if name != "visibility")
    return ", ".join(code(name + ("" if all(name in data for data in seen) else "?")) for name in names)


def events_table() -> str:
    rows = [
        (code(row.name), row.stream.value, row.visibility.value, fields_of(row.name))
        for row in EVENT_TYPES.values()
    ]
    return table(["type", "stream", "visibility", "fields of `data`"], rows)


WHO = {Access.OPEN: "anyone", Access.USER: "user", Access.ADMIN: "administrator"}


def answer_of(row: Row) -> str:
    return f"{row.status} " + code(row.response if isinstance(row.response, str) else row.response.__name__)


def routes_table() -> str:
    rows = [
        (
            code(f"{row.method} {row.path}"),
            WHO[row.access],
            code(row.body.__name__) if row.body else code("?" + row.query.__name__) if row.query else NOTHING,
            answer_of(row),
            ", ".join(code(error.code) for error in row.errors) or NOTHING,
            row.summary,
        )
        for row in ROUTES
    ]
    return table(["route", "who may", "takes", "answers", "refuses with", "what it does"], rows)


def type_of(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return code(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " or ".join(type_of(one) for one in schema["anyOf"])
    if schema.get("type") == "array":
        return "list of " + type_of(schema["items"])
    bounds = [
        f"{word} {schema[key]}" for word, key in (("from", "minimum"), ("to", "maximum")) if key in schema
    ]
    return " ".join([schema.get("format") or schema.get("type") or "anything", *bounds])


def shape_table(properties: Iterable[tuple[str, dict[str, Any], bool]]) -> str:
    def note(schema: dict[str, Any]) -> str:
        default = schema.get("default")
        return " ".join([schema.get("description", ""), f"Default {default}." if default else ""]).strip()

    rows = [
        (code(name + ("" if needed else "?")), type_of(schema), note(schema))
        for name, schema, needed in properties
    ]
    return table(["field", "type", "note"], rows)


def shapes() -> str:
    """Every body, query and answer of the listed routes, as /openapi.json describes them."""
    parts: dict[str, str] = {}
    for name, schema in document()["components"]["schemas"].items():
        needed = schema.get("required", [])
        parts[name] = shape_table(
            (field, one, field in needed) for field, one in schema["properties"].items()
        )
    for row in ROUTES:
        if row.query is not None:
            described = document()["paths"][row.path][row.method.lower()]["parameters"]
            parts["?" + row.query.__name__] = shape_table(
                (one["name"], one["schema"], False) for one in described if one["in"] == "query"
            )
    return "\n\n".join(f"### `{name}`\n\n{text}" for name, text in parts.items())


def own_tools() -> list[ToolDefinition]:
    """What Easel brings itself, on every machine."""
    on_boards = (
        board_tools.WHITEBOARD_READ,
        board_tools.WHITEBOARD_WRITE,
        board_tools.BLACKBOARD_READ,
        board_tools.BLACKBOARD_WRITE,
    )
    return [*(one.definition for one in native_tools()), *on_boards, canvas_tools.CANVAS, canvas_tools.LOGS]


def machines_tools() -> Sequence[ToolDefinition]:
    return machine.definitions("local", has_shell=True, network=False)


def needed_by(tool: ToolDefinition) -> set[str]:
    return set(tool.schema.get("required", ()))


def tools_table() -> str:
    """All of them: the first sentence of each, for it is told whole in the reference."""
    rows = [
        (
            f"[`{tool.name}`](../reference/tools.md#{tool.name.lower()})",
            ", ".join(
                code(arg + ("" if arg in needed_by(tool) else "?")) for arg in tool.schema["properties"]
            )
            or NOTHING,
            re.split(r"(?<=[^.]\.) (?=[A-Z`])", tool.description)[0],
        )
        for tool in (*own_tools(), *machines_tools())
    ]
    return table(["tool", "arguments", "what it does"], rows)


def taken_by(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(code(one) for one in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(taken_by(one) for one in schema["anyOf"])
    if schema.get("type") == "array":
        return "list of " + taken_by(schema.get("items", {}))
    kind = schema.get("type", "anything")
    bounds = [
        f"{word} {schema[key]}"
        for word, key in (("from", "minimum"), ("to", "maximum"), ("at least", "minLength"))
        if key in schema
    ]
    inner = (
        f" of {taken_by(schema['additionalProperties'])}"
        if isinstance(schema.get("additionalProperties"), dict)
        else ""
    )
    members = (
        f" with {', '.join(code(name) for name in schema['properties'])}"
        if kind == "object" and schema.get("properties")
        else ""
    )
    default = [f"({schema['default']} if left out)"] if "default" in schema else []
    return " ".join([f"{kind}{inner}{members}", *bounds, *default])


def tool_shapes() -> str:
    parts: list[str] = []
    for tool in (*own_tools(), *machines_tools()):
        asks = (
            "Read-only: a button that calls it asks nobody."
            if tool.read_only
            else "Not read-only: a button that calls it asks a person, unless its action says otherwise."
        )
        rows = [(code(name + ("" if name in needed_by(tool) else "?")), taken_by(schema), schema.get("description", ""))
                for name, schema in tool.schema["properties"].items()]  # fmt: skip
        parts.append(f"### `{tool.name}`\n\n{tool.description}\n\n{asks}")
        parts += [table(["argument", "takes", "note"], rows)] if rows else []
    return "\n\n".join(parts)


def spec_text() -> str:
    limits = spec_reference.DEFAULT_LIMITS
    parts = [
        f"Without its state a spec has at most {limits.spec_bytes:,} bytes (`EASEL_MAX_SPEC_BYTES`), nested at most {MAX_DEPTH} levels deep."
    ]
    for place, (heading, members) in GROUPS.items():
        rows = [
            (
                code(member.name),
                member.takes,
                spec_reference.shown_default(member),
                spec_reference.shown(member.example),
                member.says,
            )
            for member in members
        ]
        parts.append(f"{'##' if place in ('', 'toolPolicy', 'action', 'refresh') else '###'} {heading}\n\n"
                     + table(["member", "takes", "default", "example", "what it says"], rows))  # fmt: skip
    return "\n\n".join(parts)


def machine_table() -> str:
    rows = [(code(tool.name), ", ".join(code(arg + ("" if arg in tool.schema["required"] else "?")) for arg in tool.schema["properties"]), tool.description)
            for tool in machines_tools()]  # fmt: skip
    return table(["tool", "arguments", "what it does"], rows)


def verbs() -> dict[str, Callable[..., Any]]:
    """`up`, and those of a group with its name before them: `audit verify`."""
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


def verbs_text() -> str:
    """With its arguments and defaults, as `--help` has them."""
    parts: list[str] = []
    for name, command in verbs().items():
        given = parameters_of(name)
        arguments = [one for one in given if one.param_type_name == "argument"]
        options = [one for one in given if one.param_type_name == "option"]
        usage = " ".join(
            [
                "easel",
                name,
                *(one.metavar or one.name for one in arguments),
                *(["[OPTIONS]"] if options else []),
            ]
        )
        parts.append(f"### `easel {name}`\n\n```\n{usage}\n```\n\n{inspect.getdoc(command) or ''}")
        rows = [(code(one.metavar or one.name), NOTHING, one.help or "") for one in arguments]
        for option in options:
            shown = code(option.opts[0] if option.is_flag else f"{option.opts[0]} {option.metavar}")
            default = (
                "has to be there"
                if option.required
                else NOTHING
                if option.is_flag or option.default is None
                else code(option.default)
            )
            rows.append((shown, default, option.help or ""))
        parts += [table(["takes", "default", "what it is"], rows)] if rows else []
    return "\n\n".join(parts)


def metrics_table() -> str:
    rows: list[tuple[str, ...]] = []
    for metric in vars(metrics).values():
        if isinstance(metric, MetricWrapperBase):
            [described] = metric.describe()
            name = described.name + ("_total" if described.type == "counter" else "")
            labels = ", ".join(code(label) for label in metric._labelnames) or NOTHING
            rows.append((code(name), described.type, labels, described.documentation))
    return table(["metric", "kind", "labels", "what it counts"], rows)


def life() -> str:
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> queued"]
    lines += [
        f"    {start.value} --> {end.value}: {move.value}"
        for start, moves in MOVES.items()
        for move, end in moves.items()
    ]
    lines += [f"    {status.value} --> [*]" for status in Status if status in TERMINAL]
    return "\n".join([*lines, "```"])


GENERATED: dict[str, tuple[str, Callable[[], str]]] = {
    # part: the document it stands in, and what prints it
    "settings": ("docs/reference/settings.md", settings_table),
    "errors": ("docs/reference/errors.md", errors_table),
    "events": ("docs/reference/events.md", events_table),
    "routes": ("docs/reference/http.md", routes_table),
    "shapes": ("docs/reference/http.md", shapes),
    "verbs": ("docs/reference/cli.md", verbs_text),
    "metrics": ("docs/guide/operate.md", metrics_table),
    "life": ("docs/guide/runs.md", life),
    "tools": ("docs/guide/runs.md", tools_table),
    "machine": ("docs/guide/sandbox.md", machine_table),
    "tool_shapes": ("docs/reference/tools.md", tool_shapes),
    "spec": ("docs/reference/spec.md", spec_text),
}
PART = re.compile(r"(<!-- generated: (\w+) -->\n)(.*?)(<!-- end of generated -->)", re.DOTALL)


def refreshed(text: str) -> str:
    """The document with every generated part as the code is now."""
    return PART.sub(lambda part: f"{part[1]}\n{GENERATED[part[2]][1]()}\n\n{part[4]}", text)


def parts_of(text: str) -> dict[str, str]:
    return {part[2]: part[3].strip() for part in PART.finditer(text)}


@pytest.mark.parametrize("part", GENERATED)
def test_a_generated_part_is_what_the_code_says(part: str) -> None:
    path, prints = GENERATED[part]
    written = parts_of((PROJECT / path).read_text(encoding="utf-8"))
    assert written[part] == prints(), f"{path} is stale: run `.venv/bin/python -m tests.test_docs --write`"


def test_refreshing_changes_only_the_generated_parts() -> None:
    text = "before\n<!-- generated: life -->\nold\n<!-- end of generated -->\nafter\n"
    fresh = refreshed(text)
    assert fresh.startswith("before\n<!-- generated: life -->\n")
    assert fresh.endswith("<!-- end of generated -->\nafter\n")
    assert parts_of(fresh) == {"life": life()}
    assert refreshed(fresh) == fresh


def test_every_event_type_has_a_sample() -> None:
    assert {event.type for event in sample_events()} == set(EVENT_TYPES)


def test_the_migrations_that_the_documents_show_are_those_that_there_are() -> None:
    there = [
        path.stem.replace("_", " ", 1)
        for path in sorted((PROJECT / "src/easel/stores/migrations/sqlite").glob("*.sql"))
    ]
    assert (
        re.findall(r"migration='(.+)'", (PROJECT / "docs/tutorial.md").read_text(encoding="utf-8")) == there
    )
    assert f"schema version {len(there)}," in (PROJECT / "docs/guide/operate.md").read_text(encoding="utf-8")


def test_every_verb_of_the_gateway_is_in_the_table_of_the_guide() -> None:
    text = (PROJECT / "docs/guide/canvases.md").read_text(encoding="utf-8")
    told = {
        name
        for row in re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE)
        for name in re.findall(r"`([a-z.]+)`", row)
    }
    assert {*METHODS, "canvas.subscribe", "canvas.unsubscribe"} - told == set()


@pytest.mark.parametrize("place", [place for place in GROUPS if place != "action"])
def test_the_reference_of_the_spec_has_every_member_and_no_other(place: str) -> None:
    assert spec_reference.listed_members(place) == spec_reference.known_members(place)


@pytest.mark.parametrize("place, member", [(place, member) for place, (_, members) in GROUPS.items() for member in members],
                         ids=lambda one: one if isinstance(one, str) else one.name)  # fmt: skip
def test_each_row_of_the_reference_of_the_spec_is_so(place: str, member: spec_reference.Member) -> None:
    spec_reference.read(place, member.name, member.example)
    if member.default is NEEDED:
        with pytest.raises(BadInput):
            spec_reference.read(place, member.name, ABSENT)
    elif (
        member.default is not ABSENT and member.name != "actions"
    ):  # without any action nothing could be bound or refreshed
        assert spec_reference.read(place, member.name, member.default) == spec_reference.read(
            place, member.name, ABSENT
        )


def test_the_canvas_of_the_tutorial_is_one() -> None:
    text = (PROJECT / "docs/tutorial.md").read_text(encoding="utf-8")
    section = text.partition("Your first own canvas")[2]
    written = re.search(r"spec\.json <<'END'\n(.*?)\nEND", section, re.DOTALL)
    page = re.search(r"index\.html <<'END'\n(.*?)\nEND", section, re.DOTALL)
    assert written
    assert page
    spec = parse_spec(json.loads(written[1]))
    assert set(re.findall(r'data-gsv-action="(\w+)"', page[1])) == set(spec.actions)
    for path in re.findall(r'data-gsv-(?:text|model)="state\.([\w.]+)"', page[1]):
        assert path.partition(".")[0] in spec.state


def test_no_two_errors_share_a_name() -> None:
    names = [error.code for error in all_errors()]
    assert len(names) == len(set(names)) > 0


# --- what is named exists ---------------------------------------------------------------------------------------------

FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`[^`\n]+`")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
OUTSIDE = re.compile(r"[a-z]+:")
# Set by make and the tests, read by the tests: no settings of the product.
OF_THE_SUITE = {"EASEL_SOAK_SECONDS"}


def prose(text: str) -> str:
    return SPAN.sub("", FENCED.sub("", text))


def code_in(text: str) -> str:
    """Only what stands in code blocks and code spans."""
    return "\n".join([*FENCED.findall(text), *SPAN.findall(FENCED.sub("", text))])


def links_in(text: str) -> list[str]:
    return [first or second for first, second in LINK.findall(prose(text))]


def anchors_in(text: str) -> set[str]:
    """The fragments that a renderer gives to the headings."""
    words = (
        re.sub(r"[^\w\s-]", "", heading.lower()).strip() for heading in HEADING.findall(FENCED.sub("", text))
    )
    return {re.sub(r"\s", "-", one) for one in words}


def broken_links(text: str, path: Path) -> list[str]:
    broken: list[str] = []
    for link in links_in(text):
        if OUTSIDE.match(link):
            continue
        target, _, fragment = link.partition("#")
        found = (path.parent / unquote(target)).resolve()
        if target and not (found.exists() and found.is_relative_to(PROJECT)):
            broken.append(f"{name_of(path)}: {link} leads nowhere")
        elif fragment and fragment not in anchors_in(found.read_text(encoding="utf-8") if target else text):
            broken.append(f"{name_of(path)}: {link} names a heading that is not there")
    return broken


def named(pattern: str, text: str) -> set[str]:
    return set(re.findall(pattern, code_in(text)))


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (PROJECT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def is_route(path: str) -> bool:
    """Whether an address in a document, its places filled in or named in some other way, is one that is served."""
    shape = re.sub(r"(\{\w+\}|\$\{?\w+\}?|run_\w+|…)", "X", path.partition("?")[0].rstrip("/")) or "/"
    return any(re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", row.path), shape) for row in ROUTES)


def manuals() -> list[Path]:
    """What tells a user what to do. Design papers and the change log may speak of what is not there yet, or no more."""
    return [path for path in documents() if path.name != "CHANGELOG.md" and "design" not in path.parts]


def unknown_names(text: str, name: str) -> list[str]:
    variables = {row.variable for row in settings.rows()} | OF_THE_SUITE
    return [
        *(f"{name}: there is no `make {one}`" for one in sorted(named(r"\bmake ([a-z]+)\b", text) - make_targets())),
        *(f"{name}: there is no `easel {one}`" for one in sorted(named(r"(?<!the )\beasel (?!easel\b)([a-z]+)\b", text) - {verb.split()[0] for verb in verbs()})),
        *(f"{name}: there is no setting {one}" for one in sorted(named(r"\bEASEL_[A-Z_]*[A-Z]\b", text) - variables)),
        *(f"{name}: nothing is served at {one}" for one in sorted(named(r"(?:\$URL|:\d+|(?<![\w.~]))(/(?:api|openapi)[\w/{}$…?=.-]*)", text)) if not is_route(one)),
    ]  # fmt: skip


def test_every_relative_link_leads_to_a_file() -> None:
    assert [one for path in documents() for one in broken_links(path.read_text(encoding="utf-8"), path)] == []


def test_every_target_verb_setting_and_route_that_a_manual_names_exists() -> None:
    assert [
        one for path in manuals() for one in unknown_names(path.read_text(encoding="utf-8"), name_of(path))
    ] == []


def test_no_document_names_a_path_of_one_machine() -> None:
    temporary = re.compile(r"(?<![\w.~:/-])/tmp/\S+")
    for path in documents():
        text = path.read_text(encoding="utf-8")
        assert machine_paths(text, name_of(path)) == []
        assert temporary.findall(text) == [], name_of(path)


def test_every_document_can_be_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    ahead = [README]
    while ahead:
        path = ahead.pop()
        if path in reached or path.suffix != ".md" or not path.exists():
            continue
        reached.add(path)
        targets = [
            link.partition("#")[0]
            for link in links_in(path.read_text(encoding="utf-8"))
            if not OUTSIDE.match(link)
        ]
        for target in filter(None, targets):
            found = (path.parent / unquote(target)).resolve()
            ahead += sorted(found.glob("*.md")) if found.is_dir() else [found]
    assert [name_of(path) for path in documents() if path not in reached] == []


WRONG = [
    # a document says                                        and the complaint is
    ("[see](guide/nowhere.md)", "leads nowhere"),
    ("[see](README.md#no-such-heading)", "names a heading that is not there"),
    ("[above](#nowhere)\n# Somewhere", "names a heading that is not there"),
    ("![picture](picture.png)", "leads nowhere"),
    ("Type `make coffee`.", "there is no `make coffee`"),
    ("```sh\nmake tea\n```", "there is no `make tea`"),
    ("Type `easel dance --port 1`.", "there is no `easel dance`"),
    ("Set `EASEL_PROT` to 1.", "there is no setting EASEL_PROT"),
    ("Ask `GET /api/moon`.", "nothing is served at /api/moon"),
    ("```sh\ncurl $URL/api/runs/$RUN/dance\n```", "nothing is served at /api/runs/$RUN/dance"),
]


@pytest.mark.parametrize("text, complaint", WRONG)
def test_a_document_that_names_what_is_not_there_is_seen(text: str, complaint: str) -> None:
    found = [*broken_links(text, PROJECT / "x.md"), *unknown_names(text, "x.md")]
    assert len(found) == 1
    assert complaint in found[0]


RIGHT = [
    "[see](LICENSE), [there](docs/index.md) and [here](#top)\n# Top",
    "`make run`, `easel up --port 0`, `EASEL_PORT`, `/api/runs?session_id=main`, `POST /api/runs/{run_id}/cancel`, `/api/runs/…/events`",
    "we make coffee and the easel stands; [elsewhere](https://example.org/x)",
    "`[not](a-link)`",
]


@pytest.mark.parametrize("text", RIGHT)
def test_a_document_that_names_what_is_there_passes(text: str) -> None:
    assert broken_links(text, PROJECT / "x.md") == []
    assert unknown_names(text, "x.md") == []


# --- the tour in the README, taken -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ask:
    """One curl command, understood."""

    method: str
    url: str
    headers: dict[str, str]
    body: str | None


def curl(line: str, **places: str) -> Ask:
    """What `curl` would ask: of its options we use -s, -N, -H, -X and -d."""
    for name, value in places.items():
        line = line.replace(f"${name}", value)
    words = iter(shlex.split(line.partition(" | ")[0].removeprefix("RUN=$("), comments=True)[1:])
    method, url, headers, body = "", "", dict[str, str](), None
    for word in words:
        match word.rstrip("sN") if word.startswith("-") else word:
            case "-":
                pass
            case "-X":
                method = next(words)
            case "-d":
                body = next(words)
            case option if option.startswith("-") and option.endswith("H"):
                header, _, value = next(words).partition(": ")
                headers[header] = value
            case plain_word:
                assert not plain_word.startswith("-"), f"curl's {word} is not understood here"
                url = plain_word
    return Ask(method or ("POST" if body else "GET"), url, headers, body)


def tour() -> list[str]:
    section = README.read_text(encoding="utf-8").partition("## A tour with curl")[2]
    block = FENCED.search(section)
    assert block
    return [line for line in block[0].splitlines() if "curl" in line]


def agents_canvas(http: httpx2.Client, server: EaselProcess) -> tuple[bool, str]:
    """What comes of the script that the guide has for an agent: whether a person stands for it, and what it left in the state."""
    section = (
        (PROJECT / "docs/guide/canvases.md").read_text(encoding="utf-8").partition("## An agent makes one")[2]
    )
    script = section.partition("```json\n")[2].partition("\n```")[0]
    headers = {"Authorization": f"Bearer {server.token}"}
    run = http.post(
        f"{server.base_url}/api/runs", headers=headers, json={"session_id": "agent", "message": script}
    ).json()["run_id"]
    assert (
        '"status":"completed"' in http.get(f"{server.base_url}/api/runs/{run}/events", headers=headers).text
    )
    asked = {"method": "canvas.get", "params": {"canvasId": "clock"}}
    canvas = http.post(f"{server.base_url}/api/rpc", headers=headers, json=asked).json()
    return canvas["accepted"], canvas["state"]["note"]


def test_the_tour_in_the_readme_works_as_written(tmp_path: Path) -> None:
    start, watch, resume, cancel, listing = tour()
    with Launcher(tmp_path) as launcher, httpx2.Client(timeout=20, trust_env=False) as http:
        [server] = launcher.ready(launcher.up())
        places = {"AUTH": f"Authorization: Bearer {server.token}", "URL": server.base_url}

        def answer(line: str) -> httpx2.Response:
            ask = curl(line, **places)
            return http.request(ask.method, ask.url, headers=ask.headers, content=ask.body)

        def first_ids(line: str, count: int) -> list[int]:
            ask, seen = curl(line, **places), list[int]()
            with http.stream(ask.method, ask.url, headers=ask.headers) as stream:
                assert stream.status_code == 200
                for text in stream.iter_lines():
                    seen += [int(text.removeprefix("id: "))] if text.startswith("id: ") else []
                    if len(seen) == count:
                        break
            return seen

        listed_tools = http.get(
            f"{server.base_url}/api/tools", headers={"Authorization": f"Bearer {server.token}"}
        ).json()["tools"]
        assert {tool["name"] for tool in listed_tools} <= {
            tool.name for tool in (*own_tools(), *machines_tools())
        }
        assert agents_canvas(http, server) == (False, "Made by an agent.")
        started = answer(start)
        assert started.status_code == 202
        places["RUN"] = started.text.split('"')[3]  # as `cut -d'"' -f4` does it
        assert started.json() == {"run_id": places["RUN"], "status": "queued"}
        assert first_ids(watch, 3) == [1, 2, 3]
        assert first_ids(resume, 2) == [4, 5]
        cancelled = answer(cancel)
        assert (cancelled.status_code, cancelled.json()["status"]) == (202, "running")
        assert first_ids(watch, 10_000)[-1] > 5  # to its end, which the cancel brings
        [listed] = answer(listing).json()["runs"]
        assert (listed["run_id"], listed["status"]) == (places["RUN"], "cancelled")


# --- refreshing -------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str]) -> int:
    stale = [
        path
        for path in documents()
        if refreshed(path.read_text(encoding="utf-8")) != path.read_text(encoding="utf-8")
    ]
    for path in stale:
        if "--write" in arguments:
            path.write_text(refreshed(path.read_text(encoding="utf-8")), encoding="utf-8")
        print(f"{'refreshed' if '--write' in arguments else 'stale'}: {name_of(path)}")
    return 1 if stale and "--write" not in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
