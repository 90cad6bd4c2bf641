"""Whiteboard and blackboard over HTTP, on both stores: scope, versions, provenance and events."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.run.boards import BoardLimits
from easel.ids import new_run_id
from tests.docs_tables import PROJECT
from tests.edges.http.live import WAITING, LiveEasel, new_session, script
from tests.requirements import case, rule
from tests.support.curl import parse_curl
from tests.support.sse import Event, Parser

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx2

WRITERS = 50
BOARDS = ("whiteboard", "blackboard")


@pytest.fixture
def run_id(easel: LiveEasel) -> Iterator[str]:
    """A run that is active until the test ends it."""
    started = easel.start(WAITING)
    easel.stream_start(started)
    yield started
    easel.cancel(started)


def path(run_id: str, board: str = "whiteboard") -> str:
    return f"/api/runs/{run_id}/{board}"


def body(key: str = "plan", value: Any = 1, **more: Any) -> dict[str, Any]:
    return {"key": key, "value": value, "source_node_id": "planner", **more}


def expect_written(answer: httpx2.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    return answer.json()


def expect_refused(answer: httpx2.Response, status: int, name: str) -> dict[str, Any]:
    assert (answer.status_code, answer.json()["error"]["name"]) == (status, name), answer.text
    return answer.json()["error"]


def board_events(easel: LiveEasel, run_id: str, at: int = 0) -> list[Event]:
    """End the run, and return the board events of its log."""
    easel.cancel(run_id, at=at)
    return [event for event in easel.events(run_id, at=at) if event.type.endswith("board.write")]


# --- writing and reading ------------------------------------------------------------------------------------


@rule("CC-16", "CC-17", "CC-22")
def test_write_returns_version_and_author(easel: LiveEasel, run_id: str) -> None:
    answer = expect_written(easel.post(path(run_id), body("plan", {"steps": 3})))
    assert set(answer) == {"key", "version", "seq", "created_at", "updated_at", "provenance"}
    assert (answer["key"], answer["version"]) == ("plan", 1)
    assert answer["provenance"] == {
        "kind": "person",
        "agent_id": "owner",
        "node_id": "planner",
        "run_id": run_id,
    }
    again = expect_written(easel.post(path(run_id), body("plan", {"steps": 4})))
    assert (again["version"], again["seq"]) == (2, answer["seq"] + 1)
    assert again["created_at"] == answer["created_at"]
    assert datetime.fromisoformat(again["updated_at"]) > datetime.fromisoformat(answer["updated_at"])


@rule("CC-09", "CC-16", "CC-20", "CC-22")
def test_each_write_is_logged_with_its_provenance(easel: LiveEasel, run_id: str) -> None:
    first = expect_written(easel.post(path(run_id), body("plan", {"steps": 3})))
    second = expect_written(
        easel.post(path(run_id, "blackboard"), body("draft", "text", edge_id="planner-writer"))
    )
    white, black = board_events(easel, run_id)
    assert (white.type, white.seq) == ("whiteboard.write", first["seq"])
    assert white.data == {
        "key": "plan",
        "value": {"steps": 3},
        "version": 1,
        "source_node_id": "planner",
        "visibility": "public",
        "provenance": {"kind": "person", "agent_id": "owner", "node_id": "planner", "run_id": run_id},
    }
    assert (black.type, black.seq) == ("blackboard.write", second["seq"])
    assert (black.data["edge_id"], black.data["provenance"]["edge_id"]) == (
        "planner-writer",
        "planner-writer",
    )
    assert second["edge_id"] == second["provenance"]["edge_id"] == "planner-writer"


@rule("CC-09", "RS-04")
def test_state_stream_has_each_write_and_no_message(easel: LiveEasel, run_id: str) -> None:
    expect_written(easel.post(path(run_id), body("plan", 1)))
    expect_written(easel.post(path(run_id, "blackboard"), body("draft", 2, edge_id="a-b")))
    easel.cancel(run_id)
    log = easel.events(run_id)
    state = [
        item for item in Parser().feed(easel.get(f"/sse/run/{run_id}").content) if isinstance(item, Event)
    ]
    assert [event.type for event in state] == [
        "run.start",
        "whiteboard.write",
        "blackboard.write",
        "run.status",
        "done",
    ]
    assert [event for event in log if event.type.endswith("board.write")] == state[1:3]


VALUES = [
    None,
    True,
    0,
    -1.5,
    2**70,
    "",
    "näïve \u2028 \U0001f469\u200d\U0001f680",
    [],
    {},
    {"b": 1, "a": [None, {"": [[]]}]},
]


@pytest.mark.parametrize(
    "key", ["null", "a b", "a/b?c=d&e#f", "ключ", "%2e%2e", '{"a":1}', "x" * 200, "global"]
)
def test_any_printable_key_is_accepted(easel: LiveEasel, run_id: str, key: str) -> None:
    expect_written(easel.post(path(run_id), body(key, "v")))
    assert easel.get(path(run_id), params={"key": key}).json()["value"] == "v"


@pytest.mark.parametrize("board", BOARDS)
def test_unknown_run_or_key_is_not_found(easel: LiveEasel, run_id: str, board: str) -> None:
    # Fmt: skip.
    assert (
        "key nothing"
        in expect_refused(
            easel.get(
                path(run_id, board),
                params={"key": "nothing", "edge_id": "a-b"} if board == "blackboard" else {"key": "nothing"},
            ),
            404,
            "NOT_FOUND",
        )["message"]
    )
    for unknown in (new_run_id(), "none"):
        expect_refused(easel.get(path(unknown, board)), 404, "NOT_FOUND")
        expect_refused(
            easel.post(path(unknown, board), body(edge_id="a-b") if board == "blackboard" else body()),
            404,
            "NOT_FOUND",
        )


# --- scope and authorship -----------------------------------------------------------------------------------

REFUSED_BODIES = [
    # case board body error names
    ("an edge on the whiteboard", "whiteboard", body(edge_id="a-b"), "edge_id"),
    ("an empty edge on the whiteboard", "whiteboard", body(edge_id=""), "edge_id"),
    ("no edge on the blackboard", "blackboard", body(), "edge_id"),
    ("null as the edge", "blackboard", body(edge_id=None), "edge_id"),
    ("the whole run on the blackboard", "blackboard", body(edge_id="global"), "global"),
    ("no node", "whiteboard", {"key": "k", "value": 1}, "source_node_id"),
    ("an empty node", "whiteboard", {**body(), "source_node_id": ""}, "source_node_id"),
    ("null as the node", "whiteboard", {**body(), "source_node_id": None}, "source_node_id"),
    ("a node of two lines", "whiteboard", {**body(), "source_node_id": "a\nb"}, "source_node_id"),
    ("no key", "whiteboard", {"value": 1, "source_node_id": "n"}, "key"),
    ("an empty key", "whiteboard", body(""), "key"),
    ("a long key", "whiteboard", body("x" * 201), "key"),
    ("a key with NUL", "whiteboard", body("k\x00"), "key"),
    ("a number as the key", "whiteboard", {**body(), "key": 1}, "key"),
    ("no value", "whiteboard", {"key": "k", "source_node_id": "n"}, "value"),
    ("a version below 0", "whiteboard", body(expected_version=-1), "expected_version"),
    ("a version that is no number", "whiteboard", body(expected_version="1"), "expected_version"),
    ("a version beyond all", "whiteboard", body(expected_version=2**63), "expected_version"),
    ("a list", "whiteboard", [body()], "object"),
]


@rule("CC-16", "CC-17", "CC-18", "CC-20", "CC-21")
@case("P4")
def test_invalid_body_is_refused_and_changes_nothing(easel: LiveEasel, run_id: str) -> None:
    for says, board, sent, named in REFUSED_BODIES:
        assert named in expect_refused(easel.post(path(run_id, board), sent), 400, "BAD_INPUT")["message"], (
            says
        )
    assert [easel.get(path(run_id, board)).json() for board in BOARDS] == [{"entries": []}] * 2
    assert board_events(easel, run_id) == []


@case("P4")
@rule("CC-16", "CC-17", "RS-67")
def test_forged_author_is_ignored_with_warnings(easel: LiveEasel, run_id: str) -> None:
    forged: dict[str, Any] = {
        "agent_id": "root",
        "provenance": {"agent_id": "root"},
        "run_id": "run_2",
        "node_id": "root",
        "visibility": "internal",
        "version": 7,
    }
    written = expect_written(easel.post(path(run_id), body("k", 1, **forged)))
    author = {"kind": "person", "agent_id": "owner", "node_id": "planner", "run_id": run_id}
    assert (written["provenance"], written["version"]) == (author, 1)
    assert all(any(f"`{name}` was ignored" in warning for warning in written["warnings"]) for name in forged)
    [event] = board_events(easel, run_id)
    assert (event.data["provenance"], event.data["visibility"]) == (author, "public")


@case("P4")
@rule("CC-16", "CC-17")
def test_author_inside_a_value_is_ignored(easel: LiveEasel, run_id: str) -> None:
    forged = {
        "agent_id": "root",
        "visibility": "system",
        "provenance": {"agent_id": "root", "node_id": "x", "run_id": "y"},
    }
    expect_written(easel.post(path(run_id), body("k", forged)))
    [event] = board_events(easel, run_id)
    assert event.data["value"] == forged
    assert (event.data["provenance"]["agent_id"], event.data["visibility"]) == ("owner", "public")


@case("R1")
def test_oversized_and_deep_values_are_refused(easel: LiveEasel, run_id: str) -> None:
    def post(value: str) -> httpx2.Response:
        raw = f'{{"key":"k","value":{value},"source_node_id":"n"}}'
        return easel.post(path(run_id), content=raw.encode(), headers={"Content-Type": "application/json"})

    for bomb in (
        "[" * 102 + "]" * 102,
        "[" * 100_000 + "]" * 100_000,
        "NaN",
        "1e999",
        "9" * 10_000,
        '"\\ud800"',
        "1,,",
        "",
        '{"a":1,"a":2}',
    ):
        expect_refused(post(bomb), 400, "BAD_INPUT")
    expect_refused(post(json.dumps("x" * 262_144)), 413, "TOO_LARGE")
    expect_refused(post(json.dumps("x" * 2_000_000)), 413, "TOO_LARGE")
    assert expect_written(post("[" * 100 + "]" * 100))["version"] == 1


REFUSED_READS = [
    # case                                 board         query
    ("a key without its edge",             "blackboard", {"key": "k"}),
    ("the global edge",           "blackboard", {"key": "k", "edge_id": "global"}),
    ("all of the whole run",               "blackboard", {"edge_id": "global"}),
    ("an edge of the whiteboard",          "whiteboard", {"edge_id": "a-b"}),
    ("a key on an edge of the whiteboard", "whiteboard", {"key": "k", "edge_id": "a-b"}),
    ("an empty key",                       "whiteboard", {"key": ""}),
    ("a long key",                         "whiteboard", {"key": "x" * 201}),
]  # fmt: skip


@rule("CC-20", "CC-21", "CC-28")
@pytest.mark.parametrize(
    "board, query", [row[1:] for row in REFUSED_READS], ids=[row[0] for row in REFUSED_READS]
)
def test_read_of_an_invalid_edge_is_refused(
    easel: LiveEasel, run_id: str, board: str, query: dict[str, str]
) -> None:
    expect_refused(easel.get(path(run_id, board), params=query), 400, "BAD_INPUT")


# --- versions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("board", BOARDS)
def test_version_conflict_reports_the_current_version(easel: LiveEasel, run_id: str, board: str) -> None:
    edge = {"edge_id": "a-b"} if board == "blackboard" else {}

    def write(value: int, expected: int) -> httpx2.Response:
        return easel.post(path(run_id, board), body("k", value, expected_version=expected, **edge))

    assert expect_refused(write(0, 3), 409, "VERSION_CONFLICT")["details"]["current"] == 0
    assert expect_written(write(1, 0))["version"] == 1
    assert expect_refused(write(2, 0), 409, "VERSION_CONFLICT")["details"]["current"] == 1
    assert expect_written(write(2, 1))["version"] == 2
    error = expect_refused(write(3, 1), 409, "VERSION_CONFLICT")
    assert (error["details"]["current"], error["details"]["expected"]) == (2, 1)
    assert easel.get(path(run_id, board), params={"key": "k", **edge}).json()["value"] == 2
    assert len(board_events(easel, run_id)) == 2, "a refused write leaves no event"


# --- the run's life -----------------------------------------------------------------------------------------


@rule("RX-28")
@pytest.mark.parametrize("board", BOARDS)
def test_finished_run_refuses_writes_and_still_shows_its_boards(
    easel: LiveEasel, run_id: str, board: str
) -> None:
    sent = body("k", "kept", **({"edge_id": "a-b"} if board == "blackboard" else {}))
    expect_written(easel.post(path(run_id, board), sent))
    easel.cancel(run_id)
    assert easel.events(run_id)[-1].type == "done"
    assert (
        expect_refused(easel.post(path(run_id, board), sent), 409, "RUN_FINISHED")["details"]["status"]
        == "cancelled"
    )
    assert easel.events(run_id)[-1].type == "done"
    assert easel.get(path(run_id, board)).json()["entries"][0]["value"] == "kept"


@rule("RS-37")
def test_run_cancelled_before_start_has_an_empty_answer_despite_its_boards(
    easel: LiveEasel,
) -> None:
    session = new_session()
    active, waiting = easel.start(WAITING, session), easel.start("noop", session)
    expect_written(easel.post(path(waiting), body()))
    easel.cancel(waiting)
    easel.cancel(active)
    assert [event.type for event in easel.events(waiting)] == ["whiteboard.write", "run.status", "done"]


def test_write_reaches_a_viewer_at_another_server(two_edges: LiveEasel) -> None:
    run_id = two_edges.start(WAITING)
    two_edges.stream_start(run_id)
    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(two_edges.events, run_id, at=1)
        seq = expect_written(two_edges.post(path(run_id), body("k", "seen"), at=0))["seq"]
        two_edges.cancel(run_id)
        [event] = [event for event in watching.result() if event.type == "whiteboard.write"]
    assert (event.seq, event.data["value"]) == (seq, "seen")


# --- the run's own agent ------------------------------------------------------------------------------------


@rule("CC-09", "CC-16", "CC-18", "CC-27")
def test_agent_and_person_share_a_board(easel: LiveEasel) -> None:
    session = new_session()
    active = easel.start(WAITING, session)
    steps = [
        {"call": "gsv__WhiteboardRead", "args": {"key": "wish"}},
        {"call": "gsv__WhiteboardWrite", "args": {"key": "done", "value": "$last.value", "node_id": "maker"}},
        {"call": "gsv__BlackboardWrite", "args": {"edge_id": "maker-critic", "key": "k", "value": 1}},
    ]
    run_id = easel.start(script(*steps), session)
    expect_written(easel.post(path(run_id), body("wish", "a kite")))
    easel.cancel(active)
    events = [event for event in easel.events(run_id) if event.type.endswith("board.write")]
    assert [event.data["provenance"] for event in events] == [
        {"kind": "person", "agent_id": "owner", "node_id": "planner", "run_id": run_id},
        {"kind": "agent", "agent_id": "main", "node_id": "maker", "run_id": run_id},
        {
            "kind": "agent",
            "agent_id": "main",
            "node_id": "tool_loop",
            "run_id": run_id,
            "edge_id": "maker-critic",
        },
    ]
    assert easel.get(path(run_id), params={"key": "done"}).json()["value"] == "a kite"


def test_board_tools_are_listed_with_their_hints(easel: LiveEasel) -> None:
    tools = {tool["name"]: tool["annotations"] for tool in easel.get("/api/tools").json()["tools"]}
    for board in ("Whiteboard", "Blackboard"):
        assert tools[f"gsv__{board}Read"] == {
            "readOnlyHint": True,
            "idempotentHint": False,
            "destructiveHint": False,
        }
        assert tools[f"gsv__{board}Write"] == {
            "readOnlyHint": False,
            "idempotentHint": False,
            "destructiveHint": False,
        }


# --- limits -------------------------------------------------------------------------------------------------


@case("R1")
def test_write_over_a_board_limit_is_refused_with_the_limit(tmp_path: Path) -> None:
    with LiveEasel(tmp_path, with_worker=False) as live:
        live.instances[0].services.boards._limits = BoardLimits(value_bytes=100, keys=3, run_bytes=150)
        run_id = live.start()
        assert (
            expect_refused(live.post(path(run_id), body("a", "x" * 99)), 413, "TOO_LARGE")["details"]["limit"]
            == 100
        )
        expect_written(live.post(path(run_id), body("a", "x" * 98)))
        assert expect_refused(live.post(path(run_id), body("b", "x" * 49)), 413, "BOARD_FULL")["details"] == {
            "limit": 150,
            "what": "bytes",
        }
        expect_written(live.post(path(run_id, "blackboard"), body("a", 1, edge_id="a-b")))
        expect_written(live.post(path(run_id), body("b", 1)))
        assert expect_refused(live.post(path(run_id), body("c", 1)), 413, "BOARD_FULL")["details"] == {
            "limit": 3,
            "what": "keys",
        }
        assert expect_written(live.post(path(run_id), body("a", 2)))["version"] == 2


# --- heavy values -------------------------------------------------------------------------------------------


@rule("CC-23", "CC-26", "RS-35")
@case("R3")
def test_base64_on_a_board_is_in_no_table_and_can_be_fetched(easel: LiveEasel, run_id: str) -> None:
    pixels = "iVBORw0KGgoAAAANSUhEUgAA" * 400
    expect_written(easel.post(path(run_id), body("shot", {"pixels": pixels})))
    [event] = board_events(easel, run_id)
    on_board = easel.get(path(run_id), params={"key": "shot"}).json()["value"]["pixels"]
    for marker in (on_board, event.data["value"]["pixels"]):
        assert (marker["redacted"], marker["original_size"]) == (True, len(pixels))
        assert easel.get(marker["uri"]).text == pixels
    for table in ("boards", "run_events"):
        assert pixels[:2_100] not in str(easel.sql(f"select * from {table}"))


# --- the guide ----------------------------------------------------------------------------------------------

GUIDE = PROJECT / "docs" / "guide" / "boards.md"


def test_guide_examples_work(small_easel: LiveEasel) -> None:
    run_id = small_easel.start(WAITING)
    lines = [line for line in GUIDE.read_text(encoding="utf-8").splitlines() if line.startswith("curl ")]
    asks = [parse_curl(line, URL="", RUN=run_id, AUTH="Authorization: none") for line in lines]
    answers = [small_easel.ask(ask.method, ask.url, content=ask.body) for ask in asks]
    assert [ask.method for ask in asks] == ["POST"] * 3 + ["GET"] * 4
    assert [answer.status_code for answer in answers] == [200] * 7, [answer.text for answer in answers]
    assert [answer.json()["version"] for answer in answers[:3]] == [1, 1, 2]
    assert answers[4].json()["value"] == {"steps": 4}
    assert answers[6].json()["value"] == "It was"
    script_in_guide = GUIDE.read_text(encoding="utf-8").partition("```json\n")[2].partition("```")[0]
    written_by_agent = small_easel.finish(script_in_guide)
    assert small_easel.get(path(written_by_agent, "blackboard")).json()["entries"][0]["value"] == {"steps": 3}
    small_easel.cancel(run_id)
