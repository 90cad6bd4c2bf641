"""Resuming, pacing and what was said: the run's pure rules."""

from itertools import count
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel import ids
from easel.core.run.conversation import Step, ToolCall, ToolResult, assistant_text
from easel.core.run.deltas import DELTA_BYTES, split_text
from easel.core.run.events import RunEvents
from easel.core.run.progress import to_progress
from easel.core.run.status import Status
from easel.core.stream.envelope import Envelope
from easel.core.stream.json_text import to_json
from easel.core.tool.definition import ToolDefinition
from easel.core.validation import MAX_DEPTH, is_too_deep
from easel.ids import CallId, MessageId, RunId, answer_id, is_generated_id, is_name, new_run_id
from tests.requirements import rule

EVENTS = RunEvents(RunId("run_x"), agent_id="main", node_id="tool_loop")
CALL = ToolCall(CallId("call_1"), "gsv__Echo", {"value": 1})
RESULT = ToolResult(CallId("call_1"), "gsv__Echo", 1)
FAILURE = ToolResult(CallId("call_1"), "gsv__Echo", "no", is_error=True)
MESSAGE = MessageId("msg_x")


def to_rows(*envelopes: Envelope) -> list[tuple[str, dict[str, object]]]:
    return [(envelope.type, dict(envelope.data)) for envelope in envelopes]


LOGS = [
    # case, log, steps, started calls
    ("nothing yet", [], (), set()),
    ("only started", [EVENTS.start(1)], (), set()),
    ("a model call that was cut off", [EVENTS.start(1), EVENTS.delta(MESSAGE, "Hel")], (), set()),
    ("a step whose call was not made", [EVENTS.step(1, Step("hi", (CALL,)))], (Step("hi", (CALL,)),), set()),
    (
        "a call in flight",
        [EVENTS.step(1, Step("hi", (CALL,))), EVENTS.tool_call(CALL)],
        (Step("hi", (CALL,)),),
        {"call_1"},
    ),
    (
        "a call with its result",
        [EVENTS.step(1, Step("hi", (CALL,))), EVENTS.tool_call(CALL), EVENTS.tool_result(RESULT)],
        (Step("hi", (CALL,), (RESULT,)),),
        {"call_1"},
    ),
    (
        "a call that failed",
        [
            EVENTS.step(1, Step("", (CALL,))),
            EVENTS.tool_call(CALL),
            EVENTS.tool_result(FAILURE),
            EVENTS.start(2),
        ],
        (Step("", (CALL,), (FAILURE,)),),
        {"call_1"},
    ),
]


@rule("RX-06", "RX-30", "RS-38")
@pytest.mark.parametrize("case, log, steps, started_calls", LOGS, ids=[row[0] for row in LOGS])
def test_progress_is_read_from_the_log(
    case: str, log: list[Envelope], steps: tuple[Step, ...], started_calls: set[str]
):
    found = to_progress(to_rows(*log))
    assert found.steps == steps
    assert found.started_calls == started_calls


def test_result_of_none_finishes_its_call():
    nothing = ToolResult(CallId("call_1"), "gsv__Echo", None)
    found = to_progress(
        to_rows(EVENTS.step(1, Step("", (CALL,))), EVENTS.tool_call(CALL), EVENTS.tool_result(nothing))
    )
    assert found.steps[-1].results == (nothing,)
    assert found.steps[-1].is_finished


def test_assistant_text_joins_the_texts_of_all_steps():
    assert assistant_text((Step("a", ()), Step("", ()), Step("b", ()))) == "a\n\nb"
    assert assistant_text(()) == ""


@rule("RS-35")
@given(st.text(), st.integers(min_value=6, max_value=64))
def test_split_text_keeps_all_characters_within_the_limit(text: str, max_bytes: int):
    pieces = split_text(text, max_bytes)
    assert "".join(pieces) == text
    assert all(0 < len(to_json(piece).encode()) - 2 <= max_bytes for piece in pieces)


def test_short_text_is_not_split():
    assert split_text("x" * (DELTA_BYTES // 4)) == ["x" * (DELTA_BYTES // 4)]
    assert split_text("") == []


@rule("RX-35")
def test_run_ends_with_message_status_and_done():
    closing = EVENTS.end_with_message(MESSAGE, "hello", Status.FAILED, "broke")
    assert [event.type for event in closing] == ["message.completed", "run.status", "done"]
    assert closing[0].data["role"] == "assistant"
    assert {event.data["status"] for event in closing} == {"failed"}
    assert {event.data["error"] for event in closing} == {"broke"}
    assert all(
        "error" not in event.data for event in EVENTS.end_with_message(MESSAGE, "", Status.COMPLETED, None)
    )


@rule("RS-38")
@pytest.mark.parametrize(
    "declared, may",
    [({}, False), ({"read_only": True}, True), ({"idempotent": True}, True), ({"destructive": True}, False)],
    ids=str,
)
def test_only_read_only_and_idempotent_tools_may_be_repeated(declared: dict[str, bool], may: bool):
    assert ToolDefinition("x", "y", {}, **declared).may_repeat is may


def test_ids_are_sortable_typed_and_recognised():
    made = [new_run_id() for _ in range(50)]
    assert len(set(made)) == 50
    assert all(is_generated_id(run_id) for run_id in made)
    assert is_generated_id(answer_id(made[0]))
    assert answer_id(made[0]) == answer_id(made[0])


def test_ids_sort_in_the_order_of_their_creation(monkeypatch: pytest.MonkeyPatch):
    """Lists are in the order of ids, and two ids may be created in one millisecond."""
    moments = count(1_794_000_000_999_000_000, step=1_000)
    monkeypatch.setattr(ids, "time", SimpleNamespace(time_ns=lambda: next(moments)))
    made = [new_run_id() for _ in range(2_500)]
    assert made == sorted(made)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "run_",
        "run_1",
        "../etc/passwd",
        "run_" + "0" * 27,
        "RUN_" + "0" * 26,
        "run_" + "u" * 26,
        "run_\x00",
        "run_" + "0" * 26 + "\n",
    ],
)
def test_other_text_is_not_a_generated_id(text: str):
    assert not is_generated_id(text)


@pytest.mark.parametrize(
    "name, fits",
    [
        ("main", True),
        ("a" * 128, True),
        ("a" * 129, False),
        ("", False),
        ("a b", False),
        ("../x", False),
        ("-x", False),
        ("a:b.c_d-e", True),
        ("a\n", False),
    ],
)
def test_session_name_has_only_plain_characters(name: str, fits: bool):
    assert is_name(name) is fits


def nested(depth: int, value: object = 0) -> object:
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


@pytest.mark.parametrize(
    "depth, deep",
    [(0, False), (MAX_DEPTH - 1, False), (MAX_DEPTH, False), (MAX_DEPTH + 1, True), (100_000, True)],
)
def test_nesting_limit_is_checked_without_exhausting_the_stack(depth: int, deep: bool):
    assert is_too_deep(nested(depth, "leaf")) is deep
