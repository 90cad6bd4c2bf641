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
    BoardWrite,
    BoardWriteRequest,
    Found,
    by_digits,
    edge_of,
    place,
    prepare,
)
from easel.core.run.status import TERMINAL, Status
from easel.core.stream.envelope import Provenance, Visibility, seal
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
EMPTY = Found(Status.RUNNING, version=0, keys=0, other_bytes=0)
WHITE = BoardWriteRequest(Board.WHITEBOARD, "plan", {"steps": 3}, "planner")
BLACK = BoardWriteRequest(Board.BLACKBOARD, "draft", "text", "planner", "planner-writer")


def prepared(ask: BoardWriteRequest = WHITE, limits: BoardLimits = LIMITS) -> BoardWrite:
    return prepare(ask, limits, user_id=OWNER, run_id=RUN, agent_id="main")


# --- scope ------------------------------------------------------------------------------------------------------------


@rule("CC-21", "CC-27")
@pytest.mark.parametrize("edge_id", [None, "global"])
def test_the_whiteboard_is_one_for_the_whole_run(edge_id: str | None) -> None:
    assert place(Board.WHITEBOARD, "k", edge_id) == BoardKey(Board.WHITEBOARD, GLOBAL, "k")
    assert place(Board.WHITEBOARD, "k", edge_id).edge is None


@rule("CC-20", "CC-28")
def test_a_blackboard_value_belongs_to_its_edge() -> None:
    assert place(Board.BLACKBOARD, "k", "a-b") != place(Board.BLACKBOARD, "k", "b-a")
    assert place(Board.BLACKBOARD, "k", "a-b").edge == "a-b"


LONG = "x" * 201
REFUSED_PLACES = [
    # says                               board             edge         key
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
    "board, edge_id, key", [row[1:] for row in REFUSED_PLACES], ids=[row[0] for row in REFUSED_PLACES]
)
def test_a_place_that_cannot_be_is_refused(board: Board, edge_id: str | None, key: str) -> None:
    with pytest.raises(BadInput):
        place(board, key, edge_id)


@pytest.mark.parametrize(
    "key", ["k", "x" * 200, "a key with spaces", "ключ", "鍵/α→β", '{"quoted"}', "global"]
)
def test_any_printable_name_is_a_key(key: str) -> None:
    assert place(Board.WHITEBOARD, key, None).key == key


# --- who writes -------------------------------------------------------------------------------------------------------


@rule("CC-16", "CC-22")
def test_an_event_of_the_whiteboard_says_what_was_written_and_by_whom() -> None:
    write = prepared()
    assert (write.event(1).type, write.event(1).visibility) == ("whiteboard.write", Visibility.PUBLIC)
    assert {name: value for name, value in write.event(1).data.items() if name != "version"} == {
        "key": "plan",
        "value": {"steps": 3},
        "source_node_id": "planner",
        "visibility": "public",
        "provenance": {"agent_id": "main", "node_id": "planner", "run_id": "run_1"},
    }


@rule("CC-20", "CC-22")
def test_an_event_of_the_blackboard_says_its_edge_twice() -> None:
    data = prepared(BLACK).event(1).data
    assert data["edge_id"] == data["provenance"]["edge_id"] == "planner-writer"
    assert data["source_node_id"] == data["provenance"]["node_id"] == "planner"


@rule("CC-16", "CC-18")
@pytest.mark.parametrize("node_id", ["", "two\nlines", "x" * 201])
def test_a_write_without_a_node_is_refused(node_id: str) -> None:
    with pytest.raises(BadInput, match="source_node_id"):
        prepared(replace(WHITE, node_id=node_id))


@rule("CC-16", "CC-19")
def test_a_write_without_a_run_or_an_agent_is_refused() -> None:
    with pytest.raises(BadInput, match="run_id"):
        prepare(WHITE, LIMITS, user_id=OWNER, run_id=RunId(""), agent_id="main")
    with pytest.raises(BadInput, match="agent_id"):
        prepare(WHITE, LIMITS, user_id=OWNER, run_id=RUN, agent_id="")


@case("P4")
@rule("CC-16", "CC-17")
def test_what_a_value_says_of_its_author_is_only_a_value() -> None:
    forged = {
        "agent_id": "root",
        "visibility": "system",
        "provenance": {"agent_id": "root", "node_id": "x", "run_id": "run_2"},
    }
    data = prepared(replace(WHITE, value=forged)).event(1).data
    assert data["value"] == forged
    assert data["provenance"] == {"agent_id": "main", "node_id": "planner", "run_id": "run_1"}
    assert data["visibility"] == "public"


# --- versions and limits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expected", [None, 0])
def test_versions_count_from_one(expected: int | None) -> None:
    assert prepared(replace(WHITE, expected_version=expected)).next_version(EMPTY) == 1


@pytest.mark.parametrize("expected", [None, 7])
def test_each_write_is_one_version_more(expected: int | None) -> None:
    assert (
        prepared(replace(WHITE, expected_version=expected)).next_version(replace(EMPTY, version=7, keys=1))
        == 8
    )


FULL = replace(EMPTY, keys=10)
REFUSED_WRITES: list[tuple[str, Found, dict[str, Any], type[HostError]]] = [
    # says                          finds                                      asks                        refused with
    ("there is an older one",       replace(EMPTY, version=2, keys=1),         {"expected_version": 3},    VersionConflict),
    ("there is a newer one",        replace(EMPTY, version=4, keys=1),         {"expected_version": 3},    VersionConflict),
    ("there is one already",        replace(EMPTY, version=1, keys=1),         {"expected_version": 0},    VersionConflict),
    ("there is none",               EMPTY,                                     {"expected_version": 1},    VersionConflict),
    ("a conflict on a full board",  replace(FULL, version=2),                  {"expected_version": 0},    VersionConflict),
    ("one key too many",            FULL,                                      {},                         BoardFull),
    ("one byte too many",           replace(EMPTY, other_bytes=150_000 - 10),  {},                         BoardFull),
]  # fmt: skip


@pytest.mark.parametrize(
    "found, asks, refusal", [row[1:] for row in REFUSED_WRITES], ids=[row[0] for row in REFUSED_WRITES]
)
def test_a_write_that_does_not_fit_what_it_finds_is_refused(
    found: Found, asks: dict[str, Any], refusal: type[HostError]
) -> None:
    with pytest.raises(refusal) as told:
        prepared(replace(WHITE, **asks)).next_version(found)
    if refusal is VersionConflict:
        assert told.value.details["current"] == found.version


def test_a_full_board_can_be_written_over() -> None:
    assert prepared().next_version(replace(FULL, version=2, other_bytes=150_000 - 11)) == 3


@pytest.mark.parametrize("status", Status)
def test_a_run_that_has_ended_takes_no_more(status: Status) -> None:
    write = prepared(replace(WHITE, expected_version=5))
    if status in TERMINAL:
        with pytest.raises(RunFinished):
            write.next_version(replace(EMPTY, status=status))
    else:
        assert write.next_version(replace(EMPTY, status=status, version=5)) == 6


def test_a_value_has_a_limit_to_the_byte() -> None:
    just = BoardLimits(value_bytes=12, keys=1, run_bytes=100)
    assert prepared(replace(WHITE, value="x" * 10), just).size == 12
    with pytest.raises(TooLarge):
        prepared(replace(WHITE, value="x" * 11), just)
    with pytest.raises(TooLarge):
        prepared(replace(WHITE, value="é" * 6), just)


@case("R1")
def test_a_value_nested_too_deep_is_refused() -> None:
    value: Any = []
    for _ in range(50_000):
        value = [value]
    with pytest.raises(BadInput, match="nested"):
        prepared(replace(WHITE, value=value))


@pytest.mark.parametrize(
    "value", [None, True, 0, -1.5, 2**70, "", "text", [], {}, [None], {"a": {"b": [1, {"c": None}]}}]
)
def test_any_json_is_a_value(value: Any) -> None:
    write = prepared(replace(WHITE, value=value))
    assert write.value == to_json(value)
    assert write.event(1).data["value"] == value


# --- lightness --------------------------------------------------------------------------------------------------------


def measured(event: Envelope, version: int) -> int:
    """As RS-35 counts: compact JSON without what is ours, with the version that the store fills in."""
    said = {name: value for name, value in event.data.items() if name not in ("visibility", "provenance")}
    return len(to_json({**said, "version": version}).encode())


VERSIONS = [1, 9, 10, 99, 12_345, 10**17, 10**18, LAST_VERSION]


@rule("RS-35", "CC-26")
@pytest.mark.parametrize("version", VERSIONS)
def test_an_event_is_moved_out_of_exactly_when_it_would_be_too_long(version: int) -> None:
    fixed = measured(prepared(replace(WHITE, value="")).event(version), version)
    for size in range(LIMIT - fixed - 20, LIMIT - fixed + 21):
        event = prepared(replace(WHITE, value="x" * size)).event(version)
        assert measured(event, version) <= LIMIT
        assert (event.data["value"] == "x" * size) == (fixed + size <= LIMIT), (version, size)


@rule("RS-35", "CC-26")
def test_all_that_any_version_would_move_is_kept_beforehand() -> None:
    fixed = measured(prepared(replace(WHITE, value="")).event(1), 1)
    for size in range(LIMIT - fixed - 20, LIMIT - fixed + 21):
        write = prepared(replace(WHITE, value="x" * size))
        for version in VERSIONS:
            event = write.event(version)
            assert {one.artifact_id for one in event.offloaded} <= {
                one.artifact_id for one in write.offloaded
            }
            assert event.refers_to <= write.refers_to


def test_what_is_far_from_the_limit_is_sealed_once() -> None:
    asked: list[int] = []

    def sealed(version: int) -> Envelope:
        asked.append(version)
        return seal("whiteboard.write", {"key": "k", "version": version}, Provenance("main", "n", "run_1"))

    assert len(by_digits(sealed)) == 1
    assert len(asked) == 1


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
def test_whatever_is_written_its_event_is_light_and_names_key_edge_and_node_in_full(
    key: str, edge: str, node: str, value: Any
) -> None:
    try:
        write = prepared(BoardWriteRequest(Board.BLACKBOARD, key, value, node, edge))
    except BadInput:
        return
    event = write.event(1)
    assert measured(event, 1) <= LIMIT
    assert (event.data["key"], event.data["edge_id"], event.data["source_node_id"]) == (key, edge, node)


def test_no_name_is_longer_than_the_marker_that_would_stand_for_it() -> None:
    assert len(to_json("x" * MAX_NAME_LENGTH)) < MIN_MARKER_BYTES


@rule("RS-35", "CC-23")
def test_long_text_stays_whole_on_the_board_and_base64_does_not() -> None:
    text = "Plain words, and many of them. " * 200
    pixels = "iVBORw0KGgoAAAANSUhEUgAA" * 200
    write = prepared(replace(WHITE, value={"text": text, "shot": pixels}))
    assert text in write.value
    assert pixels not in write.value
    assert pixels not in write.event(1).json
    assert text not in write.event(1).json
    assert {bytes(one.content).decode() for one in write.offloaded} >= {pixels}
    assert write.refers_to >= {one.artifact_id for one in write.offloaded}


def test_edges_are_checked_for_reading_too() -> None:
    assert edge_of(Board.WHITEBOARD, None) == GLOBAL
    with pytest.raises(BadInput):
        edge_of(Board.BLACKBOARD, "x" * 201)
