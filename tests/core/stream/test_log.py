"""Cursors of logs, and notifications between instances."""

import contextlib
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import easel
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

SRC = Path(easel.__file__).parent


def test_only_seal_creates_envelopes():
    makers = [
        f"{path.name}:{number}"
        for folder in ("core", "host", "stores", "edges", "llm")
        for path in sorted((SRC / folder).rglob("*.py"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if re.search(r"\bEnvelope\(", line) and not line.startswith("class ")
    ]
    assert makers == ["envelope.py:" + makers[0].partition(":")[2]], (
        f"more than one place creates envelopes: {makers}"
    )


@case("E5")
@pytest.mark.parametrize("text", ["0", "1", "9223372036854775807", "0000000000000000012"])
def test_whole_number_is_a_valid_cursor(text: str):
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
def test_other_text_is_no_valid_cursor(text: str):
    with pytest.raises(BadInput):
        parse_cursor(text)


@given(st.text())
def test_cursor_parser_accepts_or_refuses_any_text(text: str):
    with contextlib.suppress(BadInput):
        assert 0 <= parse_cursor(text) <= LAST_CURSOR


OUTSIDE = [
    # case                              cursor  bounds                     is valid
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
def test_cursor_outside_the_log_is_refused_with_its_bounds(
    says: str, cursor: int, bounds: Bounds, fits: bool
):
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
def test_notification_survives_encoding(notification: Notification):
    assert from_text(to_text(notification)) == notification
    assert " " not in to_text(notification)


@pytest.mark.parametrize("text", ["", "g", '["zz",1]', '["g","run_1"]'])
def test_notification_of_a_newer_instance_is_ignored(text: str):
    assert from_text(text) is None
