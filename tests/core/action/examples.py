"""Example canvases and starts of actions, for tests that need neither a store nor a tool."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from easel.core.action.ending import fail_start
from easel.core.action.execution import actor_of
from easel.core.action.hints import remember_hints
from easel.core.action.transitions import (
    ActionStart,
    Rules,
    StartedExecution,
    StartFailed,
    approve_execution,
    start_execution,
)
from easel.core.canvas.actions import Confirm
from easel.core.canvas.canvas import Canvas, CanvasSnapshot, Change
from easel.core.canvas.spec import DEFAULT_LIMITS, parse_spec, read_spec
from easel.core.problems import Problems
from easel.core.stream.json_text import to_json
from easel.ids import CanvasId
from tests.core.canvas.specs import TOOLS, example
from tests.support.principals import person

if TYPE_CHECKING:
    from collections.abc import Mapping

    from easel.core.action.execution import Execution
    from easel.core.principal import Principal

ANN = person("ann", "Ann")
NOW = 1_730_000_000_000
AT = datetime(2026, 1, 1, tzinfo=UTC)
RULES = Rules(definitions=TOOLS, floor=Confirm.NEVER, state_bytes=100_000)
STATE = {"service": "api", "version": "1.2.7", "list": [1], "map": {"a": 1}, "text": "x"}
READS = {"kind": "tool.call", "tool": "server-a__Read", "args": {"path": "{{state.service}}"}}
ACTS = {
    "kind": "tool.call",
    "tool": "server-a__Bash",
    "args": {"command": "./deploy {{state.service}} {{input.to}}"},
}


def canvas(
    state: Mapping[str, Any] = STATE, *, accepted: bool = True, revision: int = 7, **spec: Any
) -> CanvasSnapshot:
    return CanvasSnapshot(
        Canvas(
            account_id=ANN.account_id,
            canvas_id=CanvasId("cockpit"),
            agent_id="ops",
            title="Cockpit",
            owner_session_key=None,
            spec_json=to_json(example(**spec)),
            state=state,
            revision=revision,
            last_seq=9,
            spec_revision=1,
            is_accepted=accepted,
            created_at=AT,
            updated_at=AT,
            tool_hints=remember_hints(read_spec(example(**spec), DEFAULT_LIMITS, Problems()), TOOLS),
        )
    )


def canvas_with_actions(**actions: Any) -> CanvasSnapshot:
    return canvas(actions=actions, refresh=..., bindings=...)


def start(snapshot: CanvasSnapshot, action_id: str, rules: Rules = RULES, **options: Any) -> StartedExecution:
    """Start an action of the canvas as Ann, from her laptop."""
    fields = {
        "principal": ANN,
        "actor": actor_of(ANN, "laptop", "client"),
        "event_id": "evt_1",
        "owner_id": "ins_1",
        "now_ms": NOW,
        **options,
    }
    request = ActionStart(action_id=action_id, **fields)
    try:
        return start_execution(snapshot, parse_spec(snapshot.canvas.spec), request, rules)
    except StartFailed as failure:
        return fail_start(snapshot.canvas, failure, f"<{failure.problem.code}>")


def approve(
    snapshot: CanvasSnapshot, pending: Execution, rules: Rules = RULES, *, principal: Principal = ANN
) -> StartedExecution:
    """Approve a pending execution, by default as Ann, on another instance."""
    spec = parse_spec(snapshot.canvas.spec)
    return approve_execution(snapshot, spec, pending, principal, rules, owner_id="ins_2", now_ms=NOW)


def events(change: Change) -> list[tuple[str, dict[str, Any]]]:
    return [(event.type, msgspec.json.decode(event.json)) for event in change.events]


def event_types(change: Change) -> list[str]:
    return [event.type.removeprefix("canvas.") for event in change.events]
