"""Envelopes, cursors and rings: the words of the log."""

import contextlib
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import easel
from easel.core.stream.envelope import EVENT_TYPES, Provenance, Stream, Visibility, seal
from easel.core.stream.log import LAST_CURSOR, Bounds, check_cursor, parse_cursor
from easel.core.stream.notifications import (
    ActionStopped,
    CallAnswered,
    CallPending,
    CancelRequested,
    CanvasAppended,
    LogDeleted,
    NodeChanged,
    Notification,
    RunAppended,
    RunReady,
    ThreadAppended,
    from_text,
    to_text,
)
from easel.errors import BadInput, CursorOutOfRange
from easel.ids import OWNER, RunId, new_call_id, new_connection_id, new_run_id, new_worker_id, scoped_key
from tests.requirements import case, rule

WHO = Provenance("main", "tool_loop", "run_x")
SRC = Path(easel.__file__).parent


@rule("CC-10", "CC-11")
@pytest.mark.parametrize("event_type", sorted(EVENT_TYPES))
def test_visibility_comes_from_the_table_whatever_the_data_says(event_type: str):
    sealed = seal(event_type, {"visibility": "system", "text": "x"}, WHO)
    assert sealed.visibility is EVENT_TYPES[event_type].visibility
    assert sealed.data["visibility"] == EVENT_TYPES[event_type].visibility.value


def test_thoughts_and_steps_are_internal_and_everything_else_is_public():
    internal = {name for name, kind in EVENT_TYPES.items() if kind.visibility is Visibility.INTERNAL}
    assert internal == {"reasoning.delta", "step.completed"}


@rule("CC-16")
@pytest.mark.parametrize("event_type", sorted(EVENT_TYPES))
def test_a_state_event_says_who_caused_it_and_a_forged_provenance_is_overwritten(event_type: str):
    sealed = seal(event_type, {"provenance": {"agent_id": "mallory"}}, WHO)
    if EVENT_TYPES[event_type].stream is not Stream.NARRATIVE:
        assert sealed.data["provenance"] == {"agent_id": "main", "node_id": "tool_loop", "run_id": "run_x"}
    else:
        assert "provenance" not in sealed.data


def test_sealing_leaves_the_given_data_as_it_was():
    data = {"text": "x"}
    seal("message.delta", data, WHO)
    assert data == {"text": "x"}


def test_only_seal_makes_envelopes():
    makers = [
        f"{path.name}:{number}"
        for folder in ("core", "host", "stores", "edges", "llm")
        for path in sorted((SRC / folder).rglob("*.py"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if re.search(r"\bEnvelope\(", line) and not line.startswith("class ")
    ]
    assert makers == ["envelope.py:" + makers[0].partition(":")[2]], f"made in more than one place: {makers}"


@case("E5")
@pytest.mark.parametrize("text", ["0", "1", "9223372036854775807", "0000000000000000012"])
def test_a_whole_number_is_a_cursor(text: str):
    assert parse_cursor(text) == int(text)


@case("E5")
@rule("RS-34")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "-1",
        "+1",
        "1e9",
        "9223372036854775808",
        " 1",
        "1 ",
        "1\x00",
        "٣",
        "²",
        "0x1",
        "1_000",
        "9" * 10_000,
        "run_1",
    ],
)
def test_anything_else_is_not(text: str):
    with pytest.raises(BadInput):
        parse_cursor(text)


@given(st.text())
def test_no_text_breaks_the_cursor_parser(text: str):
    with contextlib.suppress(BadInput):
        assert 0 <= parse_cursor(text) <= LAST_CURSOR


OUTSIDE = [
    # says                              cursor  bounds                     fits
    ("the start of a whole log", 0, Bounds(1, 5, ended=False), True),
    ("the head", 5, Bounds(1, 5, ended=False), True),
    ("above the head", 6, Bounds(1, 5, ended=False), False),
    ("an empty log from its start", 0, Bounds(1, 0, ended=False), True),
    ("an empty log from elsewhere", 1, Bounds(1, 0, ended=False), False),
    ("just before what is kept", 4, Bounds(5, 9, ended=True), True),
    ("below what is kept", 3, Bounds(5, 9, ended=True), False),
    ("the start of a shortened log", 0, Bounds(5, 9, ended=True), False),
]


@rule("RS-34")
@pytest.mark.parametrize("says, cursor, bounds, fits", OUTSIDE, ids=[row[0] for row in OUTSIDE])
def test_a_cursor_outside_what_is_held_is_told_so(says: str, cursor: int, bounds: Bounds, fits: bool):
    if fits:
        check_cursor(cursor, bounds)
        return
    with pytest.raises(CursorOutOfRange) as refused:
        check_cursor(cursor, bounds)
    assert refused.value.details == {"cursor": cursor, "oldest": bounds.oldest, "newest": bounds.newest}


RINGS = [
    RunAppended(new_run_id(), 12),
    ThreadAppended(scoped_key(OWNER, "a.b:c-d_e"), 3),
    CanvasAppended(scoped_key(OWNER, "12.cockpit"), 2**40),
    LogDeleted("canvas", scoped_key(OWNER, "x.y")),
    LogDeleted("run", new_run_id()),
    RunReady(),
    RunReady(anywhere=True),
    RunReady(prefers=new_worker_id()),
    RunReady(anywhere=True, prefers=new_worker_id()),
    CancelRequested(RunId("run_1")),
    NodeChanged(scoped_key(OWNER, "a.b:c-d_e"), new_connection_id()),
    CallPending(new_connection_id()),
    CallAnswered(new_call_id()),
    ActionStopped("evt_1"),
]


@pytest.mark.parametrize("notification", RINGS)
def test_a_ring_is_read_back_as_it_was_rung(notification: Notification):
    assert from_text(to_text(notification)) == notification
    assert " " not in to_text(notification)


@pytest.mark.parametrize("text", ["", "zsomething new", "gx.run_1", "g.", "g"])
def test_what_a_newer_instance_says_is_ignored(text: str):
    assert from_text(text) is None
