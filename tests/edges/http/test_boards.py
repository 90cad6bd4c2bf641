"""Whiteboard and blackboard over HTTP, on both stores: scope, versions, provenance and events."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.run.boards import BoardLimits
from easel.ids import new_run_id
from tests.docs_tables import PROJECT
from tests.edges.http.live import WAITING, LiveEasel
from tests.requirements import case, rule
from tests.support.curl import parse_curl
from tests.support.sse import Event, Parser

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx2

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


def board_events(easel: LiveEasel, run_id: str) -> list[Event]:
    """End the run, and return the board events of its log."""
    easel.cancel(run_id)
    return [event for event in easel.events(run_id) if event.type.endswith("board.write")]


# --- writing and reading ------------------------------------------------------------------------------------


@rule("CC-09", "CC-16", "CC-17", "CC-20", "CC-22", "RS-04")
def test_write_returns_version_and_author_and_is_logged_with_them(easel: LiveEasel, run_id: str) -> None:
    answer = expect_written(easel.post(path(run_id), body("plan", {"steps": 3})))
    assert set(answer) == {"key", "version", "seq", "created_at", "updated_at", "provenance"}
    author = {"kind": "person", "agent_id": "owner", "node_id": "planner", "run_id": run_id}
    assert (answer["key"], answer["version"], answer["provenance"]) == ("plan", 1, author)
    again = expect_written(easel.post(path(run_id), body("plan", {"steps": 4})))
    assert (again["version"], again["seq"]) == (2, answer["seq"] + 1)
    assert again["created_at"] == answer["created_at"]
    assert datetime.fromisoformat(again["updated_at"]) > datetime.fromisoformat(answer["updated_at"])
    on_edge = body("draft", "text", edge_id="planner-writer")
    black = expect_written(easel.post(path(run_id, "blackboard"), on_edge))
    assert black["edge_id"] == black["provenance"]["edge_id"] == "planner-writer"
    read = easel.get(path(run_id)).json()["entries"]
    assert [(entry["key"], entry["value"], entry["version"]) for entry in read] == [("plan", {"steps": 4}, 2)]
    events = board_events(easel, run_id)
    assert [event.seq for event in events] == [answer["seq"], again["seq"], black["seq"]]
    assert events[0].data == {
        "key": "plan",
        "value": {"steps": 3},
        "version": 1,
        "source_node_id": "planner",
        "visibility": "public",
        "provenance": author,
    }
    assert events[2].data["provenance"] == {**author, "edge_id": "planner-writer"}
    state = [
        item for item in Parser().feed(easel.get(f"/sse/run/{run_id}").content) if isinstance(item, Event)
    ]
    assert [event.type for event in state] == [
        "run.start",
        *["whiteboard.write"] * 2,
        "blackboard.write",
        "run.status",
        "done",
    ], "each write and no message"
    assert state[1:4] == events


@rule("CC-20", "CC-21", "CC-28")
def test_read_of_an_unknown_or_invalid_place_is_refused(easel: LiveEasel, run_id: str) -> None:
    for key in ("a/b?c=d&e#f", "ключ", "%2e%2e", "x" * 200):
        expect_written(easel.post(path(run_id), body(key, "v")))
        assert easel.get(path(run_id), params={"key": key}).json()["value"] == "v"
    missing = easel.get(path(run_id), params={"key": "nothing"})
    assert "key nothing" in expect_refused(missing, 404, "NOT_FOUND")["message"]
    for board in BOARDS:
        for unknown in (new_run_id(), "none"):
            expect_refused(easel.get(path(unknown, board)), 404, "NOT_FOUND")
            on_edge = {"edge_id": "a-b"} if board == "blackboard" else {}
            expect_refused(easel.post(path(unknown, board), body(**on_edge)), 404, "NOT_FOUND")
    for board, query in (
        ("blackboard", {"key": "k"}),
        ("blackboard", {"edge_id": "global"}),
        ("whiteboard", {"edge_id": "a-b"}),
        ("whiteboard", {"key": ""}),
    ):
        expect_refused(easel.get(path(run_id, board), params=query), 400, "BAD_INPUT")


# --- scope and authorship -----------------------------------------------------------------------------------

REFUSED_BODIES = [
    # case board body error names
    ("an edge on the whiteboard", "whiteboard", body(edge_id="a-b"), "edge_id"),
    ("no edge on the blackboard", "blackboard", body(), "edge_id"),
    ("the whole run on the blackboard", "blackboard", body(edge_id="global"), "global"),
    ("no node", "whiteboard", {"key": "k", "value": 1}, "source_node_id"),
    ("an empty node", "whiteboard", {**body(), "source_node_id": ""}, "source_node_id"),
    ("null as the node", "whiteboard", {**body(), "source_node_id": None}, "source_node_id"),
    ("no key", "whiteboard", {"value": 1, "source_node_id": "n"}, "key"),
    ("a long key", "whiteboard", body("x" * 201), "key"),
    ("no value", "whiteboard", {"key": "k", "source_node_id": "n"}, "value"),
    ("a version below 0", "whiteboard", body(expected_version=-1), "expected_version"),
    ("a version that is no number", "whiteboard", body(expected_version="1"), "expected_version"),
    ("a version beyond all", "whiteboard", body(expected_version=2**63), "expected_version"),
    ("a list", "whiteboard", [body()], "object"),
]


@rule("CC-16", "CC-17", "CC-18", "CC-20", "CC-21")
@case("P4", "R1")
def test_invalid_body_is_refused_and_changes_nothing(easel: LiveEasel, run_id: str) -> None:
    for says, board, sent, named in REFUSED_BODIES:
        error = expect_refused(easel.post(path(run_id, board), sent), 400, "BAD_INPUT")
        assert named in error["message"], says

    def post(value: str) -> httpx2.Response:
        raw = f'{{"key":"k","value":{value},"source_node_id":"n"}}'
        return easel.post(path(run_id), content=raw.encode(), headers={"Content-Type": "application/json"})

    for bomb in ("[" * 102 + "]" * 102, "[" * 100_000 + "]" * 100_000, "NaN", '"\\ud800"', '{"a":1,"a":2}'):
        expect_refused(post(bomb), 400, "BAD_INPUT")
    expect_refused(post(json.dumps("x" * 262_144)), 413, "TOO_LARGE")
    assert [easel.get(path(run_id, board)).json() for board in BOARDS] == [{"entries": []}] * 2
    assert expect_written(post("[" * 100 + "]" * 100))["version"] == 1
    assert len(board_events(easel, run_id)) == 1


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
    written = expect_written(easel.post(path(run_id), body("k", forged, **forged)))
    author = {"kind": "person", "agent_id": "owner", "node_id": "planner", "run_id": run_id}
    assert (written["provenance"], written["version"]) == (author, 1)
    assert all(any(f"`{name}` was ignored" in warning for warning in written["warnings"]) for name in forged)
    [event] = board_events(easel, run_id)
    assert (event.data["provenance"], event.data["visibility"]) == (author, "public")
    assert event.data["value"] == forged


# --- versions and the run's life ----------------------------------------------------------------------------


@rule("RX-28")
@pytest.mark.parametrize("board", BOARDS)
def test_write_of_another_version_or_to_a_finished_run_is_refused(
    easel: LiveEasel, run_id: str, board: str
) -> None:
    edge = {"edge_id": "a-b"} if board == "blackboard" else {}

    def write(value: int, expected: int) -> httpx2.Response:
        return easel.post(path(run_id, board), body("k", value, expected_version=expected, **edge))

    assert expect_refused(write(0, 3), 409, "VERSION_CONFLICT")["details"]["current"] == 0
    assert expect_written(write(1, 0))["version"] == 1
    error = expect_refused(write(2, 0), 409, "VERSION_CONFLICT")
    assert (error["details"]["current"], error["details"]["expected"]) == (1, 0)
    assert expect_written(write(2, 1))["version"] == 2
    assert len(board_events(easel, run_id)) == 2, "a refused write leaves no event"
    error = expect_refused(write(3, 2), 409, "RUN_FINISHED")
    assert error["details"]["status"] == "cancelled"
    assert easel.events(run_id)[-1].type == "done"
    assert easel.get(path(run_id, board), params={"key": "k", **edge}).json()["value"] == 2


@case("R1")
def test_write_over_a_board_limit_is_refused_with_the_limit(tmp_path: Path) -> None:
    with LiveEasel(tmp_path, with_worker=False) as live:
        live.instances[0].services.boards._limits = BoardLimits(value_bytes=100, keys=1, run_bytes=150)
        run_id = live.start()
        error = expect_refused(live.post(path(run_id), body("a", "x" * 99)), 413, "TOO_LARGE")
        assert error["details"]["limit"] == 100
        expect_written(live.post(path(run_id), body("a", "x" * 98)))
        error = expect_refused(live.post(path(run_id), body("b", 1)), 413, "BOARD_FULL")
        assert error["details"] == {"limit": 1, "what": "keys"}


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
