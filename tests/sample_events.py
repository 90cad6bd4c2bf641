"""A sample of every event type, for the reference of events."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from easel.core.action.ending import (
    complete_execution,
    expire_confirmation,
    fail_execution,
    fail_start,
    reject_execution,
)
from easel.core.action.execution import actor_of
from easel.core.action.hints import remember_hints
from easel.core.action.output import OutputChunk, output_events
from easel.core.action.transitions import ActionStart, Rules, StartFailed, start_execution
from easel.core.canvas.actions import Confirm
from easel.core.canvas.canvas import Canvas, CanvasSnapshot, View
from easel.core.canvas.events import CanvasEvents
from easel.core.canvas.spec import parse_spec
from easel.core.document.document import Author, AuthorKind
from easel.core.document.lease import Free, Held
from easel.core.principal import ActorKind, Principal, PrincipalKind, as_program
from easel.core.run import boards
from easel.core.run.conversation import ContextStart, ProviderData, Step, ToolCall, ToolResult, Usage
from easel.core.run.events import RunEvents
from easel.core.run.instructions import Instructions
from easel.core.run.status import Status
from easel.core.session.events import CREATED, REMOVED, RENAMED, session_event
from easel.core.session.message import question
from easel.core.stream.envelope import Provenance
from easel.core.stream.json_text import to_json
from easel.core.stream.message_text import EncodedRun, take_out_runs
from easel.core.tool.definition import ToolDefinition
from easel.errors import ActionFailed
from easel.ids import OWNER, CallId, CanvasId, MessageId, RunId, SessionId, UserId, artifact_id
from tests.support.principals import THE_OWNER, person

if TYPE_CHECKING:
    from collections.abc import Iterator

    from easel.core.stream.envelope import Envelope


AT = datetime(2026, 1, 1, tzinfo=UTC)
ERROR = {"code": 500, "name": "ACTION_FAILED", "message": "it broke"}


def sample_events() -> list[Envelope]:
    """Return a sample of every event type, and two where it has optional fields."""
    make = RunEvents(RunId("run_1"), agent_id="main", node_id="tool_loop", attempt=1)
    message = MessageId("msg_1")
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
    changed = Provenance("owner", "session", "talk", kind=ActorKind.PERSON)
    return [
        *(session_event(name, "talk", "A title", changed) for name in (CREATED, RENAMED, REMOVED)),
        make.start(1),
        make.delta(message, "Hello"),
        make.delta(message, EncodedRun("A" * 3_000)),
        *question(RunId("run_1"), take_out_runs("word " * 1_000)).deltas[:1],
        make.thought(message, "Hm"),
        *repeated_deltas(message),
        make.thought(message, EncodedRun("A" * 3_000)),
        make.step(1, Step("Hello", (call,))),
        make.step(
            2,
            Step("", (), usage=Usage(1, 1), provider_data=ProviderData("anthropic", {}), prefix="0"),
            ContextStart(RunId("run_0"), {CanvasId("doc"): "0" * 64}),
            Instructions("Be brief.", ()),
        ),
        make.hidden_update(message, "Canvas update", Author(AuthorKind.PERSON, "owner")),
        make.tool_call(call),
        make.tool_result(ToolResult(call.call_id, call.tool, 1)),
        make.tool_result(ToolResult(call.call_id, call.tool, "No.", is_error=True)),
        *(
            boards.prepare(ask, limits, account_id=OWNER, run_id=RunId("run_1"), agent_id="main").event
            for ask in on_boards
        ),
        *make.end_with_message(message, "Hello", Status.COMPLETED, None),
        *make.end_with_message(message, "word " * 1_000, Status.COMPLETED, None),
        *make.end_with_message(message, "Hello", Status.FAILED, "No.", usage=Usage(1, 1)),
        on_canvas.created(1, "Cockpit"),
        on_canvas.updated(2, ["/deploy/status"]),
        on_canvas.view_opened(2, View("view_1", "browser", "con_1", UserId("owner")), 1),
        on_canvas.snapshot(
            2, picture, "/api/artifacts/" + picture, media_type="image/png", size=1, sha256="0" * 64
        ),
        *action_events(),
        on_canvas.refresh_failed(
            2, {"refreshId": "poll", "actionId": "look", "error": ERROR, "failures": 1, "retryInMs": 2_000}
        ),
        on_canvas.refresh_recovered(2, {"refreshId": "poll", "actionId": "look"}),
        on_canvas.document_changed(2, "0" * 64, 1, Author(AuthorKind.ASSISTANT, "main", RunId("run_1"))),
        on_canvas.lease_changed(2, Free(1), "message"),
        on_canvas.lease_changed(2, Held(1, "lease_1", RunId("run_1"), SessionId("s"), AT), "check_out"),
    ]


def repeated_deltas(message: MessageId) -> list[Envelope]:
    """Return the deltas of a step whose answer broke off."""
    make = RunEvents(RunId("run_1"), agent_id="main", node_id="tool_loop", attempt=1)
    make.try_number = 2
    return [make.delta(message, ""), make.thought(message, "Hm")]


def action_events() -> Iterator[Envelope]:
    """Yield the events of canvas actions, as the transitions create them."""
    yield from actions_of(THE_OWNER)
    yield from actions_of(
        as_program(replace(person("ann", "Ann"), account_id=OWNER), PrincipalKind.SERVICE, "ci")
    )


def actions_of(principal: Principal) -> Iterator[Envelope]:
    actor = actor_of(principal, "browser", "client")
    echo = ToolDefinition("gsv__Echo", "", {"type": "object"}, read_only=True)
    call = {"kind": "tool.call", "tool": "gsv__Echo", "args": {"value": "x"}}
    actions = {
        "set": {"kind": "state.patch", "patch": [{"op": "add", "path": "/n", "value": 1}]},
        "say": {**call, "saveAs": "said"},
    }
    raw = {
        "version": 1,
        "toolPolicy": {"allow": ["gsv__Echo", "gsv__Missing"]},
        "actions": {
            **actions,
            "ask": {**call, "confirm": "always", "approval": "another"},
            "break": {**call, "tool": "gsv__Missing"},
        },
    }
    canvas = Canvas(
        account_id=OWNER,
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
        created_at=AT,
        updated_at=AT,
        tool_hints=remember_hints(spec := parse_spec(raw), {"gsv__Echo": echo}),
    )
    snapshot = CanvasSnapshot(canvas)
    rules = Rules(
        definitions={"gsv__Echo": echo},
        floor=Confirm.NEVER,
        state_bytes=10_000,
        has_other_approver=True,
    )
    for action_id in (*actions, "ask", "break"):
        start = ActionStart(
            principal=principal,
            actor=actor,
            action_id=action_id,
            event_id="evt_1",
            owner_id="wrk_1",
            now_ms=1,
        )
        try:
            started = start_execution(snapshot, spec, start, rules)
        except StartFailed as failure:
            yield from fail_start(canvas, failure, "it broke").events
            continue
        yield from started.events
        if action_id == "say":
            decide = complete_execution("x", started, principal, now_ms=2, state_bytes=10_000)
            yield from decide(snapshot).events
            yield from output_events(
                started.execution, 1, [OutputChunk("Hello"), OutputChunk("…", is_cut=True)]
            )
            yield from fail_execution(
                ActionFailed(problem="it broke"), "it broke", started.execution, principal, now_ms=2
            )(snapshot).events
        if action_id == "ask":
            yield from reject_execution(started.execution, principal, owner_id="wrk_1", now_ms=2)(
                snapshot
            ).events
            yield from expire_confirmation(started.execution, principal, 2)(snapshot).events
