"""The rules of the boards: scope, names, versions, limits, and the event of a write."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel.core.run.boards import (
    GLOBAL,
    LAST_VERSION,
    MAX_NAME_LENGTH,
    Board,
    BoardKey,
    BoardLimits,
    BoardState,
    BoardWrite,
    BoardWriteRequest,
    prepare,
    to_board_key,
    to_edge_id,
)
from easel.core.run.status import TERMINAL, Status
from easel.core.stream.envelope import Visibility
from easel.core.stream.json_text import to_json
from easel.core.stream.marker import MIN_MARKER_BYTES
from easel.core.stream.payload_limit import LIMIT
from easel.errors import BadInput, BoardFull, HostError, RunFinished, TooLarge, VersionConflict
from easel.ids import OWNER, RunId
from tests.requirements import case, rule

if TYPE_CHECKING:
    from easel.core.stream.envelope import Envelope

RUN = RunId("run_1")
LIMITS = BoardLimits(value_bytes=100_000, keys=10, run_bytes=150_000)
EMPTY = BoardState(Status.RUNNING, version=0, keys=0, other_bytes=0)
WHITE = BoardWriteRequest(Board.WHITEBOARD, "plan", {"steps": 3}, "planner")
BLACK = BoardWriteRequest(Board.BLACKBOARD, "draft", "text", "planner", "planner-writer")


def prepared(request: BoardWriteRequest = WHITE, limits: BoardLimits = LIMITS) -> BoardWrite:
    return prepare(request, limits, account_id=OWNER, run_id=RUN, agent_id="main")


# --- scope --------------------------------------------------------------------------------------------------


@rule("CC-21", "CC-27")
@pytest.mark.parametrize("edge_id", [None, "global"])
def test_whiteboard_is_shared_by_the_whole_run(edge_id: str | None) -> None:
    assert to_board_key(Board.WHITEBOARD, "k", edge_id) == BoardKey(Board.WHITEBOARD, GLOBAL, "k")
    assert to_board_key(Board.WHITEBOARD, "k", edge_id).edge is None


@rule("CC-20", "CC-28")
def test_blackboard_value_belongs_to_its_edge() -> None:
    assert to_board_key(Board.BLACKBOARD, "k", "a-b") != to_board_key(Board.BLACKBOARD, "k", "b-a")
    assert to_board_key(Board.BLACKBOARD, "k", "a-b").edge == "a-b"


LONG = "x" * 201
INVALID_KEYS = [
    # case                               board             edge         key
    ("whiteboard, some edge",            Board.WHITEBOARD, "a-b",       "k"),
    ("whiteboard, an empty edge",        Board.WHITEBOARD, "",          "k"),
    ("whiteboard, nearly global",        Board.WHITEBOARD, "Global",    "k"),
    ("blackboard, no edge",              Board.BLACKBOARD, None,        "k"),
    ("blackboard, an empty edge",        Board.BLACKBOARD, "",          "k"),
    ("blackboard, the whole run",        Board.BLACKBOARD, "global",    "k"),
    ("blackboard, an edge of two lines", Board.BLACKBOARD, "a\nb",      "k"),
    ("blackboard, a long edge",          Board.BLACKBOARD, LONG,        "k"),
    ("no key",                           Board.WHITEBOARD, None,        ""),
    ("a long key",                       Board.WHITEBOARD, None,        LONG),
    ("a key of 100 letters, 300 bytes",  Board.WHITEBOARD, None,        "字" * 100),
    ("a key that is written longer",     Board.WHITEBOARD, None,        '"' * 101),
    ("a key with NUL",                   Board.WHITEBOARD, None,        "k\x00"),
    ("a key with half a letter",         Board.WHITEBOARD, None,        "\ud800"),
    ("a key that writes backwards",      Board.WHITEBOARD, None,        "\u202ek"),
]  # fmt: skip


@rule("CC-20", "CC-21")
@case("P4")
@pytest.mark.parametrize(
    "board, edge_id, key", [row[1:] for row in INVALID_KEYS], ids=[row[0] for row in INVALID_KEYS]
)
def test_invalid_key_or_edge_is_refused(board: Board, edge_id: str | None, key: str) -> None:
    with pytest.raises(BadInput):
        to_board_key(board, key, edge_id)


@pytest.mark.parametrize(
    "key", ["k", "x" * 200, "a key with spaces", "ключ", "鍵/α→β", '{"quoted"}', "global"]
)
def test_any_printable_name_is_a_valid_key(key: str) -> None:
    assert to_board_key(Board.WHITEBOARD, key, None).key == key


# --- authors ------------------------------------------------------------------------------------------------


@rule("CC-16", "CC-22")
def test_whiteboard_event_has_value_and_author() -> None:
    write = prepared()
    assert (write.event.type, write.event.visibility) == ("whiteboard.write", Visibility.PUBLIC)
    assert {name: value for name, value in write.event.data.items() if name != "version"} == {
        "key": "plan",
        "value": {"steps": 3},
        "source_node_id": "planner",
        "visibility": "public",
        "provenance": {"kind": "agent", "agent_id": "main", "node_id": "planner", "run_id": "run_1"},
    }


@rule("CC-20", "CC-22")
def test_blackboard_event_names_its_edge_in_data_and_provenance() -> None:
    data = prepared(BLACK).event.data
    assert data["edge_id"] == data["provenance"]["edge_id"] == "planner-writer"
    assert data["source_node_id"] == data["provenance"]["node_id"] == "planner"


@rule("CC-16", "CC-18")
@pytest.mark.parametrize("node_id", ["", "two\nlines", "x" * 201])
def test_write_without_a_valid_node_is_refused(node_id: str) -> None:
    with pytest.raises(BadInput, match="source_node_id"):
        prepared(replace(WHITE, node_id=node_id))


@rule("CC-16", "CC-19")
def test_write_without_a_run_or_an_agent_is_refused() -> None:
    with pytest.raises(BadInput, match="run_id"):
        prepare(WHITE, LIMITS, account_id=OWNER, run_id=RunId(""), agent_id="main")
    with pytest.raises(BadInput, match="agent_id"):
        prepare(WHITE, LIMITS, account_id=OWNER, run_id=RUN, agent_id="")


@case("P4")
@rule("CC-16", "CC-17")
def test_author_claimed_in_a_value_is_ignored() -> None:
    forged = {
        "agent_id": "root",
        "visibility": "system",
        "provenance": {"agent_id": "root", "node_id": "x", "run_id": "run_2"},
    }
    data = prepared(replace(WHITE, value=forged)).event.data
    assert data["value"] == forged
    assert data["provenance"] == {
        "kind": "agent",
        "agent_id": "main",
        "node_id": "planner",
        "run_id": "run_1",
    }
    assert data["visibility"] == "public"


# --- versions and limits ------------------------------------------------------------------------------------


@pytest.mark.parametrize("expected", [None, 0])
def test_versions_count_from_one(expected: int | None) -> None:
    assert prepared(replace(WHITE, expected_version=expected)).next_version(EMPTY) == 1


@pytest.mark.parametrize("expected", [None, 7])
def test_each_write_increments_the_version(expected: int | None) -> None:
    assert (
        prepared(replace(WHITE, expected_version=expected)).next_version(replace(EMPTY, version=7, keys=1))
        == 8
    )


FULL = replace(EMPTY, keys=10)
REFUSED_WRITES: list[tuple[str, BoardState, dict[str, Any], type[HostError]]] = [
    # case state request error
    ("an older version", replace(EMPTY, version=2, keys=1), {"expected_version": 3}, VersionConflict),
    ("a newer version", replace(EMPTY, version=4, keys=1), {"expected_version": 3}, VersionConflict),
    ("the key exists", replace(EMPTY, version=1, keys=1), {"expected_version": 0}, VersionConflict),
    ("no such key", EMPTY, {"expected_version": 1}, VersionConflict),
    ("a conflict on a full board", replace(FULL, version=2), {"expected_version": 0}, VersionConflict),
    ("one key too many", FULL, {}, BoardFull),
    ("one byte too many", replace(EMPTY, other_bytes=150_000 - 10), {}, BoardFull),
]


@pytest.mark.parametrize(
    "state, request_members, refusal",
    [row[1:] for row in REFUSED_WRITES],
    ids=[row[0] for row in REFUSED_WRITES],
)
def test_write_that_conflicts_with_the_board_state_is_refused(
    state: BoardState, request_members: dict[str, Any], refusal: type[HostError]
) -> None:
    with pytest.raises(refusal) as error:
        prepared(replace(WHITE, **request_members)).next_version(state)
    if refusal is VersionConflict:
        assert error.value.details["current"] == state.version


def test_existing_key_of_a_full_board_can_be_overwritten() -> None:
    assert prepared().next_version(replace(FULL, version=2, other_bytes=150_000 - 11)) == 3


@pytest.mark.parametrize("status", Status)
def test_write_to_a_finished_run_is_refused(status: Status) -> None:
    write = prepared(replace(WHITE, expected_version=5))
    if status in TERMINAL:
        with pytest.raises(RunFinished):
            write.next_version(replace(EMPTY, status=status))
    else:
        assert write.next_version(replace(EMPTY, status=status, version=5)) == 6


def test_value_size_is_limited_to_the_byte() -> None:
    just = BoardLimits(value_bytes=12, keys=1, run_bytes=100)
    assert prepared(replace(WHITE, value="x" * 10), just).size == 12
    with pytest.raises(TooLarge):
        prepared(replace(WHITE, value="x" * 11), just)
    with pytest.raises(TooLarge):
        prepared(replace(WHITE, value="é" * 6), just)


@case("R1")
def test_value_nested_too_deeply_is_refused() -> None:
    value: Any = []
    for _ in range(50_000):
        value = [value]
    with pytest.raises(BadInput, match="nested"):
        prepared(replace(WHITE, value=value))


@pytest.mark.parametrize(
    "value", [None, True, 0, -1.5, 2**70, "", "text", [], {}, [None], {"a": {"b": [1, {"c": None}]}}]
)
def test_any_json_is_a_valid_value(value: Any) -> None:
    write = prepared(replace(WHITE, value=value))
    assert write.value == to_json(value)
    assert write.event.data["value"] == value


# --- payload limit ------------------------------------------------------------------------------------------


def measure(event: Envelope) -> int:
    """Return the size that RS-35 limits: compact JSON without visibility and provenance."""
    data = {name: value for name, value in event.data.items() if name not in ("visibility", "provenance")}
    return len(to_json(data).encode())


@rule("RS-35", "CC-26")
def test_value_is_offloaded_when_its_event_would_exceed_the_limit_at_the_last_version() -> None:
    fixed = measure(prepared(replace(WHITE, value="")).event)
    assert prepared().event.data["version"] == LAST_VERSION
    for size in (LIMIT - fixed - 1, LIMIT - fixed, LIMIT - fixed + 1):
        write = prepared(replace(WHITE, value="x" * size))
        assert measure(write.event) <= LIMIT
        assert (write.event.data["value"] == "x" * size) == (fixed + size <= LIMIT)
        assert write.event.offloaded == write.offloaded
        assert write.event.refers_to == write.refers_to


names = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=60) | st.sampled_from(
    ["x" * 200, '"' * 100, "字" * 66]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=300) | st.just("A" * 3_000),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=300), inner, max_size=10),
    max_leaves=60,
)


@rule("RS-35", "CC-22")
@given(names, names, names, values)
def test_event_of_any_value_fits_the_limit_and_names_key_edge_and_node(
    key: str, edge: str, node: str, value: Any
) -> None:
    try:
        write = prepared(BoardWriteRequest(Board.BLACKBOARD, key, value, node, edge))
    except BadInput:
        return
    event = write.event
    assert measure(event) <= LIMIT
    assert (event.data["key"], event.data["edge_id"], event.data["source_node_id"]) == (key, edge, node)


def test_longest_name_is_shorter_than_a_marker() -> None:
    assert len(to_json("x" * MAX_NAME_LENGTH)) < MIN_MARKER_BYTES


@rule("RS-35", "CC-23")
def test_base64_is_offloaded_from_a_board_and_long_text_is_not() -> None:
    text = "Plain words, and many of them. " * 200
    pixels = "iVBORw0KGgoAAAANSUhEUgAA" * 200
    write = prepared(replace(WHITE, value={"text": text, "shot": pixels}))
    assert text in write.value
    assert pixels not in write.value
    assert pixels not in write.event.json
    assert text not in write.event.json
    assert {bytes(value.content).decode() for value in write.offloaded} >= {pixels}
    assert write.refers_to >= {value.artifact_id for value in write.offloaded}


def test_edge_is_validated_for_reading() -> None:
    assert to_edge_id(Board.WHITEBOARD, None) == GLOBAL
    with pytest.raises(BadInput):
        to_edge_id(Board.BLACKBOARD, "x" * 201)
