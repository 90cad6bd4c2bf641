"""Events are read back within the size limit, also where numbers are stored as decimals."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.canvas.canvas import NewCanvas
from easel.core.canvas.events import CanvasEvents
from easel.core.run.batch import Batch
from easel.core.run.conversation import ToolResult
from easel.core.stream.marker import markers_in
from easel.core.stream.payload_limit import LIMIT, restore_markers
from easel.ids import OWNER, CallId, CanvasId
from tests.requirements import rule
from tests.stores.harness import Store, assert_stored, run_events, start_run

if TYPE_CHECKING:
    from easel.core.stream.envelope import Envelope

RANDOM = random.Random(22)
LARGE_VALUES: dict[str, Any] = {
    "many large numbers": [1e308] * 300,
    "many small numbers": [1.5e-300] * 250,
    "numbers in objects": [{"n": -2.5e-200, "s": "1e308"} for _ in range(60)],
    "numbers deep inside": [[[1e300, {"a": [1e-300, -0.0, 1e16]}]] for _ in range(30)],
    "one number too many": ["x" * 1_600, 1e308, 12.5],
    "numbers of all sizes": [RANDOM.uniform(-1, 1) * 10.0 ** RANDOM.randint(-300, 300) for _ in range(80)],
    "large integers": [10**40 + at for at in range(45)],
    "numbers among words": {f"key {at}": [at * 1e22, 'say "1e308"\n', None, True] for at in range(20)},
}


def compact(payload: str) -> str:
    """Return the JSON as the database writes it, without its spaces and the members that `seal` adds."""
    data = json.loads(payload, parse_float=WrittenNumber, parse_int=WrittenNumber)
    return (
        "{"
        + ",".join(
            f"{json.dumps(key)}:{to_text(offloaded_value)}"
            for key, offloaded_value in data.items()
            if key not in ("visibility", "provenance")
        )
        + "}"
    )


class WrittenNumber(str):
    """A number as written in the JSON."""

    __slots__ = ()


def to_text(value: Any) -> str:
    if isinstance(value, WrittenNumber):
        return str(value)
    if isinstance(value, dict):
        return (
            "{"
            + ",".join(
                f"{json.dumps(key, ensure_ascii=False)}:{to_text(offloaded_value)}"
                for key, offloaded_value in value.items()
            )
            + "}"
        )
    if isinstance(value, list):
        return "[" + ",".join(map(to_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def assert_within_limit_and_complete(payload: str, sealed: Envelope, value: Any, where: str) -> None:
    assert len(compact(payload).encode()) <= LIMIT, where
    fetched = {offloaded_value.artifact_id: offloaded_value.content for offloaded_value in sealed.offloaded}
    read = json.loads(payload)
    assert markers_in(read) == set(fetched)
    assert numbers(restore_markers(read, fetched)[where]) == numbers(value)


def numbers(value: Any) -> Any:
    """Return the value with all numbers as decimals: 1e22 equals 10000000000000000000000."""
    return json.loads(json.dumps(value), parse_int=float)


@rule("RS-35", "CC-25", "RX-17")
@pytest.mark.parametrize("what", LARGE_VALUES)
async def test_run_event_is_read_back_within_2_kb(store: Store, what: str) -> None:
    claim = await start_run(store.runs)
    sealed = run_events(claim.run_id).tool_result(
        ToolResult(CallId("call_1"), "gsv__Echo", LARGE_VALUES[what])
    )
    assert_stored(await store.runs.append(Batch(claim, 1, [sealed])))
    [row] = await store.sql(
        "select cast(payload as text) as payload from run_events where event_type = 'tool.result'"
    )
    assert_within_limit_and_complete(row["payload"], sealed, LARGE_VALUES[what], "result")


@rule("RS-35", "CC-25")
@pytest.mark.parametrize("what", LARGE_VALUES)
async def test_canvas_event_is_read_back_within_2_kb(store: Store, what: str) -> None:
    name = CanvasId("cockpit")
    events = CanvasEvents(name, agent_id="owner", event_id="evt_1")
    sealed = events.action("finished", 1, {"result": LARGE_VALUES[what]})
    new = NewCanvas(account_id=OWNER, canvas_id=name, agent_id="main", title="Cockpit", spec={}, state={})
    assert await store.database.canvases.create(new, sealed) is not None
    [row] = await store.sql("select cast(payload as text) as payload from canvas_events")
    assert_within_limit_and_complete(row["payload"], sealed, LARGE_VALUES[what], "result")
