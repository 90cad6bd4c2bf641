"""The end of an execution: its result is saved in the current canvas, or its failure is logged. No store,
tool or clock.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.action.ending import complete_execution, fail_execution
from easel.core.action.execution import ExecutionStatus
from easel.core.stream.marker import is_marker
from easel.errors import BadInput, TooLarge, ToolFailed
from tests.core.action.examples import (
    ANN,
    NOW,
    READS,
    STATE,
    canvas,
    canvas_with_actions,
    event_types,
    events,
    start,
)
from tests.requirements import rule

if TYPE_CHECKING:
    from easel.core.action.execution import ExecutionChange
    from easel.core.canvas.canvas import CanvasSnapshot


def end_with(
    result: Any, snapshot: CanvasSnapshot, state_bytes: int = 100_000, **target: Any
) -> ExecutionChange:
    started = start(canvas_with_actions(act={**READS, **target}), "act")
    decide = complete_execution(result, started, ANN, now_ms=NOW + 5, state_bytes=state_bytes)
    return decide(snapshot)


OUTCOME = {"ok": True, "result": {"r": 1}, "finishedAt": NOW + 5}
SAVED: list[tuple[str, dict[str, Any], Any, Any]] = [
    # case                   how                                       state before  state after
    ("replaced",             {"saveAs": "out"},                        "old",        OUTCOME),
    ("created",              {"saveAs": "out"},                        ...,          OUTCOME),
    ("appended",             {"saveAs": "out", "saveMode": "append"},  [0],          [0, OUTCOME]),
    ("appended to nothing",  {"saveAs": "out", "saveMode": "append"},  ...,          [OUTCOME]),
    ("merged",               {"saveAs": "out", "saveMode": "merge"},   {"k": 1},     {"k": 1, "r": 1}),
    ("merged into nothing",  {"saveAs": "out", "saveMode": "merge"},   None,         {"r": 1}),
]  # fmt: skip


@rule("CV-21", "RS-12", "RS-43")
@pytest.mark.parametrize("how, there, after", [row[1:] for row in SAVED], ids=[row[0] for row in SAVED])
def test_result_is_saved_by_its_mode(how: dict[str, Any], there: Any, after: Any) -> None:
    state = STATE if there is ... else {**STATE, "out": there}
    change = end_with({"r": 1}, canvas(state), **how)
    assert change.state == {**STATE, "out": after}


@rule("CV-39", "CV-44", "CV-38")
def test_result_is_saved_into_the_current_state() -> None:
    """The action started at revision 7, and the state changed while the tool ran."""
    change = end_with("r", canvas({"theirs": True}, revision=12), saveAs="a.b")
    assert change.state == {"theirs": True, "a": {"b": {"ok": True, "result": "r", "finishedAt": NOW + 5}}}
    assert event_types(change) == ["updated", "action.finished"]
    (_, updated), (_, finished) = events(change)
    assert updated["changedPaths"] == ["/a/b"]
    assert (updated["revision"], finished["revision"], finished["endedAt"], finished["saveAs"]) == (
        13,
        13,
        NOW + 5,
        "a.b",
    )
    assert (change.transition.from_status, change.transition.execution.status) == (
        ExecutionStatus.RUNNING,
        ExecutionStatus.COMPLETED,
    )


@rule("CV-44")
def test_result_without_save_as_only_appends_to_the_log() -> None:
    change = end_with("r", canvas())
    assert event_types(change) == ["action.finished"]
    assert (change.is_mutation, change.state) == (False, None)
    assert change.transition.execution.answer == {}


@rule("CV-36", "CV-48")
@pytest.mark.parametrize("request_id, answer", [(None, {}), ("r1", {"result": "r"})])
@pytest.mark.parametrize("target", [{}, {"saveAs": "out"}])
def test_record_has_the_result_only_if_the_request_can_be_repeated(
    request_id: str | None, answer: Any, target: dict[str, Any]
) -> None:
    """A refresh every second would otherwise store every result it ever read."""
    started = start(canvas_with_actions(act={**READS, **target}), "act", request_id=request_id)
    decide = complete_execution("r", started, ANN, now_ms=NOW, state_bytes=100_000)
    transition = decide(canvas()).transition
    assert transition.execution.answer == answer


def test_offloaded_values_are_not_stored_if_nothing_refers_to_them() -> None:
    started = start(canvas_with_actions(act=READS), "act")
    decide = complete_execution(LONG, started, ANN, now_ms=NOW, state_bytes=100_000)
    assert decide(canvas()).offloaded == ()


@rule("CV-42", "RS-43")
@pytest.mark.parametrize(
    "target, state, result",
    [
        ({"saveAs": "out", "saveMode": "append"}, {"out": "text"}, 1),
        ({"saveAs": "out", "saveMode": "merge"}, {"out": {}}, "no object"),
        ({"saveAs": "out.x"}, {"out": 5}, 1),
    ],
)
def test_result_that_no_longer_fits_the_state_is_refused(
    target: dict[str, Any], state: dict[str, Any], result: Any
) -> None:
    with pytest.raises(BadInput, match="out"):
        end_with(result, canvas(state), **target)


def test_result_that_makes_the_state_too_large_is_refused() -> None:
    with pytest.raises(TooLarge):
        end_with("x" * 2_000, canvas(), state_bytes=1_000, saveAs="out")


# Base64 that is long enough to be offloaded.
LONG = base64.b64encode(b"".join(hashlib.sha256(bytes([n])).digest() for n in range(80))).decode()


@rule("RS-35", "RS-43")
def test_saved_outcome_keeps_its_shape_when_the_result_is_offloaded() -> None:
    started = start(canvas_with_actions(act={**READS, "saveAs": "out"}), "act", request_id="r1")
    decide = complete_execution(LONG, started, ANN, now_ms=NOW, state_bytes=100_000)
    change = decide(canvas())
    assert change.state is not None
    out = change.state["out"]
    assert (out["ok"], out["finishedAt"], is_marker(out["result"])) == (True, NOW, True)
    assert change.transition.execution.answer == {"result": out["result"]}
    assert [value.content for value in change.offloaded] == [LONG.encode()]


@rule("RS-35", "RS-12")
def test_offloaded_result_is_not_merged() -> None:
    """The merged object would look like a marker and be replaced on reading."""
    with pytest.raises(BadInput, match="cannot be merged"):
        end_with(LONG, canvas({"out": {"k": 1}}), saveAs="out", saveMode="merge")


@rule("CV-42", "RS-33")
def test_failure_is_logged_and_leaves_the_state_unchanged() -> None:
    started = start(canvas_with_actions(act={**READS, "saveAs": "out"}), "act")
    change = fail_execution(
        ToolFailed(tool="t", reason="secret"), "t: [redacted]", started.execution, ANN, now_ms=NOW + 9
    )(canvas(revision=8))
    [(event_type, data)] = events(change)
    assert event_type == "canvas.action.failed"
    assert data["error"] == {"code": 500, "name": "TOOL_FAILED", "message": "t: [redacted]"}
    assert (data["endedAt"], data["revision"], data["provenance"]["run_id"]) == (NOW + 9, 8, "evt_1")
    assert (change.is_mutation, change.state) == (False, None)
    assert (change.transition.from_status, change.transition.execution.status) == (
        ExecutionStatus.RUNNING,
        ExecutionStatus.FAILED,
    )
