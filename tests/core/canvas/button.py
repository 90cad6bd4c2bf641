"""A canvas to press the buttons of, in tests that need neither a store nor a tool."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from easel.core.action.transitions import Press, Rules, StartedExecution, start_execution
from easel.core.canvas.actions import Confirm
from easel.core.canvas.canvas import Canvas, CanvasSnapshot, Change
from easel.core.canvas.execution import actor_of
from easel.core.canvas.spec import checked_spec
from easel.core.principal import Principal
from easel.core.stream.json_text import to_json
from easel.ids import CanvasId, UserId
from tests.core.canvas.specs import TOOLS, example

if TYPE_CHECKING:
    from collections.abc import Mapping

ANN = Principal(UserId("ann"), "Ann")
NOW = 1_730_000_000_000
AT = datetime(2026, 1, 1, tzinfo=UTC)
RULES = Rules(definitions=TOOLS, floor=Confirm.NEVER, state_bytes=100_000)
STATE = {"service": "api", "version": "1.2.7", "list": [1], "map": {"a": 1}, "text": "x"}


def canvas(
    state: Mapping[str, Any] = STATE, *, accepted: bool = True, revision: int = 7, **spec: Any
) -> CanvasSnapshot:
    return CanvasSnapshot(
        Canvas(
            user_id=ANN.user_id,
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
        )
    )


def press(action_id: str, **more: Any) -> Press:
    actor = actor_of(ANN, "laptop", "client")
    given = {
        "principal": ANN,
        "actor": actor,
        "event_id": "evt_1",
        "owner_id": "ins_1",
        "now_ms": NOW,
        **more,
    }
    return Press(action_id=action_id, **given)


def acting(snapshot: CanvasSnapshot, action_id: str, rules: Rules = RULES, **more: Any) -> StartedExecution:
    return start_execution(snapshot, checked_spec(snapshot.canvas.spec), press(action_id, **more), rules)


def actions(**declared: Any) -> CanvasSnapshot:
    return canvas(actions=declared, refresh=..., bindings=...)


def told(change: Change) -> list[tuple[str, dict[str, Any]]]:
    return [(event.type, msgspec.json.decode(event.json)) for event in change.events]


def types(change: Change) -> list[str]:
    return [event.type.removeprefix("canvas.") for event in change.events]


READS = {"kind": "tool.call", "tool": "server-a__Read", "args": {"path": "{{state.service}}"}}
ACTS = {
    "kind": "tool.call",
    "tool": "server-a__Bash",
    "args": {"command": "./deploy {{state.service}} {{input.to}}"},
}
