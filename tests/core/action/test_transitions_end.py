"""How an action ends: its result goes into the canvas as that is then, or its failure is told. No store, no tool, no clock."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from easel.core.action.transitions import completed, failed
from easel.core.canvas.execution import ExecutionStatus
from easel.core.stream.marker import is_marker
from easel.errors import BadInput, TooLarge, ToolFailed
from tests.core.canvas.button import ANN, NOW, READS, STATE, acting, actions, canvas, told, types
from tests.requirements import rule

if TYPE_CHECKING:
    from easel.core.canvas.canvas import CanvasSnapshot, Change


def ending(result: Any, snapshot: CanvasSnapshot, state_bytes: int = 100_000, **saving: Any) -> Change:
    begun = acting(actions(act={**READS, **saving}), "act")
    decide, _ = completed(result, begun, ANN, now_ms=NOW + 5, state_bytes=state_bytes)
    return decide(snapshot)


SAVED: list[tuple[str, dict[str, Any], Any, Any]] = [
    # says                   how                                              the state there  the state after
    ("replaced",             {"saveAs": "out"},                               "old",           {"ok": True, "result": {"r": 1}, "finishedAt": NOW + 5}),
    ("made",                 {"saveAs": "out"},                               ...,             {"ok": True, "result": {"r": 1}, "finishedAt": NOW + 5}),
    ("appended",             {"saveAs": "out", "saveMode": "append"},         [0],             [0, {"ok": True, "result": {"r": 1}, "finishedAt": NOW + 5}]),
    ("appended to nothing",  {"saveAs": "out", "saveMode": "append"},         ...,             [{"ok": True, "result": {"r": 1}, "finishedAt": NOW + 5}]),
    ("merged",               {"saveAs": "out", "saveMode": "merge"},          {"k": 1},        {"k": 1, "r": 1}),
    ("merged into nothing",  {"saveAs": "out", "saveMode": "merge"},          None,            {"r": 1}),
]  # fmt: skip


@rule("CV-21", "RS-12", "RS-43")
@pytest.mark.parametrize("how, there, after", [row[1:] for row in SAVED], ids=[row[0] for row in SAVED])
def test_a_result_is_saved_as_its_mode_says(how: dict[str, Any], there: Any, after: Any) -> None:
    state = STATE if there is ... else {**STATE, "out": there}
    change = ending({"r": 1}, canvas(state), **how)
    assert change.state == {**STATE, "out": after}


@rule("CV-39", "CV-44", "CV-38")
def test_a_result_goes_into_the_canvas_as_it_is_then() -> None:
    """The press was made at revision 7; by the time the tool returns others have changed the state."""
    change = ending("r", canvas({"theirs": True}, revision=12), saveAs="a.b")
    assert change.state == {"theirs": True, "a": {"b": {"ok": True, "result": "r", "finishedAt": NOW + 5}}}
    assert types(change) == ["updated", "action.finished"]
    (_, updated), (_, finished) = told(change)
    assert updated["changedPaths"] == ["/a/b"]
    assert (updated["revision"], finished["revision"], finished["endedAt"], finished["saveAs"]) == (
        13,
        13,
        NOW + 5,
        "a.b",
    )
    assert change.transition is not None
    assert (change.transition.from_status, change.transition.execution.status) == (
        ExecutionStatus.RUNNING,
        ExecutionStatus.COMPLETED,
    )


@rule("CV-44")
def test_without_save_as_nothing_changes_but_the_log() -> None:
    change = ending("r", canvas())
    assert types(change) == ["action.finished"]
    assert (change.is_mutation, change.state) == (False, None)
    assert change.transition is not None
    assert change.transition.execution.answer == {}


@rule("CV-36", "CV-48")
@pytest.mark.parametrize("request_id, kept", [(None, {}), ("r1", {"result": "r"})])
@pytest.mark.parametrize("saving", [{}, {"saveAs": "out"}])
def test_a_record_holds_a_result_only_where_its_request_can_be_asked_again(
    request_id: str | None, kept: Any, saving: dict[str, Any]
) -> None:
    """A job that runs every second would keep all that it ever read, beside the state that has its latest."""
    begun = acting(actions(act={**READS, **saving}), "act", request_id=request_id)
    decide, _ = completed("r", begun, ANN, now_ms=NOW, state_bytes=100_000)
    step = decide(canvas()).transition
    assert step is not None
    assert step.execution.answer == kept


def test_what_nothing_speaks_of_is_not_kept() -> None:
    begun = acting(actions(act=READS), "act")
    assert completed(CUT, begun, ANN, now_ms=NOW, state_bytes=100_000)[1] == ()


@rule("CV-42", "RS-43")
@pytest.mark.parametrize(
    "saving, state, result",
    [
        ({"saveAs": "out", "saveMode": "append"}, {"out": "meanwhile"}, 1),
        ({"saveAs": "out", "saveMode": "merge"}, {"out": {}}, "no object"),
        ({"saveAs": "out.x"}, {"out": 5}, 1),
    ],
)
def test_what_cannot_be_saved_any_more_is_refused_when_it_is_there(
    saving: dict[str, Any], state: dict[str, Any], result: Any
) -> None:
    with pytest.raises(BadInput, match="out"):
        ending(result, canvas(state), **saving)


def test_a_state_that_a_result_would_make_too_large_is_refused() -> None:
    with pytest.raises(TooLarge):
        ending("x" * 2_000, canvas(), state_bytes=1_000, saveAs="out")


# Base64 that is cut in two, each too short to be moved by itself.
LONG = base64.b64encode(b"".join(hashlib.sha256(bytes([n])).digest() for n in range(80))).decode()
CUT = {"a": LONG[:1_500], "b": LONG[1_500:3_000]}


@rule("RS-35", "RS-43")
def test_what_is_saved_always_has_its_own_shape_and_only_the_result_is_moved() -> None:
    begun = acting(actions(act={**READS, "saveAs": "out"}), "act", request_id="r1")
    decide, offloaded = completed(CUT, begun, ANN, now_ms=NOW, state_bytes=100_000)
    change = decide(canvas())
    assert change.state is not None
    out = change.state["out"]
    assert (out["ok"], out["finishedAt"], is_marker(out["result"])) == (True, NOW, True)
    assert change.transition is not None
    assert change.transition.execution.answer == {"result": out["result"]}
    assert [one.content for one in offloaded] == [msgspec.json.encode(CUT)]


@rule("RS-35", "RS-12")
def test_a_result_that_is_moved_as_a_whole_is_not_merged() -> None:
    """Else the object that is there would pass for the marker, and be lost when it is put back."""
    with pytest.raises(BadInput, match="cannot be merged"):
        ending(CUT, canvas({"out": {"k": 1}}), saveAs="out", saveMode="merge")


@rule("CV-42", "RS-33")
def test_a_failure_is_told_and_leaves_the_state_alone() -> None:
    begun = acting(actions(act={**READS, "saveAs": "out"}), "act")
    change = failed(ToolFailed(tool="t", reason="secret"), "t: [redacted]", begun.execution, ANN, NOW + 9)(
        canvas(revision=8)
    )
    [(event_type, data)] = told(change)
    assert event_type == "canvas.action.failed"
    assert data["error"] == {"code": 500, "name": "TOOL_FAILED", "message": "t: [redacted]"}
    assert (data["endedAt"], data["revision"], data["provenance"]["run_id"]) == (NOW + 9, 8, "evt_1")
    assert (change.is_mutation, change.state) == (False, None)
    assert change.transition is not None
    assert (change.transition.from_status, change.transition.execution.status) == (
        ExecutionStatus.RUNNING,
        ExecutionStatus.FAILED,
    )
