"""A run's log as server-sent events, on both stores: the contract of DESIGN §6."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from easel.edges.errors import CONNECTION
from easel.edges.http.sse import EventStream
from tests.edges.http.conftest import HEARTBEAT_SECONDS
from tests.edges.http.live import WAITING, chatter, in_time, new_session, script
from tests.requirements import case, rule
from tests.support.sse import Comment, Cursor, Event, Item, Parser, Retry

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx2

    from tests.edges.http.live import LiveEasel

TALK = script(
    {"think": "hm"},
    {"say": "Looking."},
    {"call": "gsv__Echo", "args": {"value": {"a": [1, None, "x"]}}},
    {"say": "Done."},
)
ABUSED = [
    # case, cursor as sent, status of the response
    ("below zero", "-1", 400),
    ("2^63", "9223372036854775808", 400),
    ("the largest number", "9223372036854775807", 410),
    ("a float", "1e9", 400),
    ("a fraction", "1.0", 400),
    ("hexadecimal", "0x1", 400),
    ("a sign", "+1", 400),
    ("underscored", "1_0", 400),
    ("a word", "abc", 400),
    ("another run's id", "run_01m7f7dea5qy4gjds115sry356", 400),
    ("two", "1,2", 400),
    ("a future event", "1000", 410),
    ("long", "1" * 10_000, 400),
    ("long zeros", "0" * 10_000 + "1", 400),
]


def shape(events: list[Event]) -> list[tuple[int, str]]:
    return [(event.seq, event.type) for event in events]


# --- what it carries ----------------------------------------------------------------------------------------


@rule("RX-24", "RX-25", "RX-33", "RS-02")
def test_stream_is_the_public_log_from_start_to_done(easel: LiveEasel) -> None:
    run_id = easel.start(TALK)
    events = easel.events(run_id)
    assert [event.type for event in events] == [
        "run.start",
        "message.delta",
        "tool.call",
        "tool.result",
        "message.delta",
        "message.completed",
        "run.status",
        "done",
    ]
    assert [event.seq for event in events] == [
        1,
        3,
        5,
        6,
        7,
        8,
        9,
        10,
    ]  # 2 and 4 are internal: skipped, not renumbered
    by_type = {event.type: event.data for event in events}
    assert by_type["run.start"]["attempt"] == 1
    assert by_type["tool.call"] == {
        "call_id": "call_1",
        "run_id": run_id,
        "tool": "gsv__Echo",
        "args": {"value": {"a": [1, None, "x"]}},
        "visibility": "public",
    }
    assert by_type["tool.result"]["result"] == {"a": [1, None, "x"]}
    message = by_type["message.completed"]
    assert (message["role"], message["status"], message["run_id"]) == ("assistant", "completed", run_id)
    assert (
        message["text"]
        == "".join(event.data["text"] for event in events if event.type == "message.delta")
        == "Looking.\n\nDone."
    )
    assert by_type["run.status"]["status"] == by_type["done"]["status"] == "completed"


@rule("RX-24", "RX-35")
@pytest.mark.parametrize(
    "message, outcome", [("noop", "completed"), (script({"fail": "out of luck"}), "failed")]
)
def test_shortest_runs_have_start_and_done(easel: LiveEasel, message: str, outcome: str) -> None:
    events = easel.events(easel.start(message))
    assert shape(events) == [(1, "run.start"), (2, "message.completed"), (3, "run.status"), (4, "done")]
    assert {event.data["status"] for event in events[1:]} == {outcome}
    assert ("out of luck" in events[1].data.get("error", "")) == (outcome == "failed")


@rule("RX-33")
def test_event_has_the_wire_format_of_the_contract(easel: LiveEasel) -> None:
    body = easel.stream(easel.start()).text
    first = next(block for block in body.split("\n\n") if block.startswith("id:"))
    lines = dict(line.split(": ", 1) for line in first.split("\n"))
    assert list(lines) == ["id", "event", "data"]
    assert (lines["id"], lines["event"]) == ("1", "run.start")
    envelope = json.loads(lines["data"])
    assert list(envelope) == ["seq", "type", "ts", "data"]
    assert (envelope["seq"], envelope["type"]) == (1, "run.start")
    assert envelope["ts"].endswith("Z")


def test_hostile_text_cannot_break_out_of_its_event(easel: LiveEasel) -> None:
    hostile = "x\n\nid: 999\nevent: done\ndata: {}\n\n\r\r\u2028\u0085\x0b<script>"
    events = easel.events(
        easel.start(script({"say": hostile}, {"call": "gsv__Echo", "args": {"value": hostile}}))
    )
    assert events[1].data["text"] == hostile
    assert events[3].data["result"] == hostile
    assert [event.type for event in events].count("done") == 1


def test_unstorable_characters_are_replaced_and_the_run_continues(easel: LiveEasel) -> None:
    message = (
        '{"script":[{"say":"nul \\u0000 '
        'end"},{"call":"gsv__Echo","args":{"value":"\\u0000"}},{"say":"after"}]}'
    )
    events = easel.events(easel.start(message))
    assert events[1].data["text"] == "nul \ufffd end"
    assert events[-1].data["status"] == "completed"


@rule("RS-36")
@pytest.mark.parametrize(
    "query, sees", [({}, False), ({"debug": "0"}, False), ({"debug": ""}, False), ({"debug": "1"}, True)]
)
def test_internal_events_are_sent_only_on_request(
    easel: LiveEasel, query: dict[str, str], sees: bool
) -> None:
    run_id = easel.finish(TALK)
    events = easel.events(run_id, **query)
    assert any(event.data["visibility"] == "internal" for event in events) == sees
    if sees:
        assert [event.seq for event in events] == list(range(1, 11))
        assert events[1].data["text"] == "hm"


# --- headers and life ---------------------------------------------------------------------------------------


def test_response_has_its_content_type_and_forbids_caching(easel: LiveEasel) -> None:
    answer = easel.stream(easel.start())
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-accel-buffering"] == "no"
    items = Parser().feed(answer.content)
    assert isinstance(items[0], Retry), "the first line sets the retry delay"


@rule("RX-35")
@case("E7")
def test_stream_of_a_finished_run_ends_after_one_done(easel: LiveEasel) -> None:
    run_id = easel.finish(TALK)
    for _ in range(2):
        types = [event.type for event in easel.events(run_id)]
        assert types.count("done") == 1
        assert types[-1] == "done"


@rule("RX-35")
@case("E7")
def test_streams_opened_while_a_run_ends_get_done_exactly_once(easel: LiveEasel) -> None:
    for _ in range(10):
        run_id = easel.start(script({"ticks": 3, "every_ms": 5}))
        with ThreadPoolExecutor(8) as pool:
            seen = list(pool.map(easel.events, [run_id] * 8))
        assert all(shape(events) == shape(seen[0]) for events in seen)
        assert [event.type for event in seen[0]].count("done") == 1


def test_idle_stream_gets_heartbeat_comments(easel: LiveEasel) -> None:
    run_id, parser, comments, second_at = easel.start(WAITING), Parser(), 0, 0.0
    with (
        easel.stranger() as client,
        client.stream("GET", f"/api/runs/{run_id}/events", headers=easel.bearer) as answer,
    ):
        chunks = answer.iter_bytes()
        while comments < 5:
            for item in parser.feed(next(chunks)):
                # A wake-up for an event that was sent already is a comment too: start after the last event.
                comments = comments + 1 if isinstance(item, Comment) else 0
                second_at = time.monotonic() if comments == 2 else second_at
    assert time.monotonic() - second_at > 2.5 * HEARTBEAT_SECONDS, "heartbeats came too often"
    easel.cancel(run_id)


def read_until(easel: LiveEasel, path: str, is_reached: Callable[[Item], bool], **headers: str) -> list[Item]:
    """Return the items of a stream up to the first that satisfies the predicate."""
    parser, items = Parser(), list[Item]()
    with (
        easel.stranger() as client,
        client.stream("GET", path, headers={**easel.bearer, **headers}) as answer,
    ):
        for chunk in in_time(answer.iter_bytes()):
            items += parser.feed(chunk)
            if any(map(is_reached, items)):
                return items
    raise AssertionError(f"{path} ended before the awaited item")


@rule("RX-34", "RS-04")
def test_stream_of_the_state_passes_hidden_events_with_its_heartbeats(easel: LiveEasel) -> None:
    run_id = easel.start(script({"ticks": 300}, {"wait_ms": 600_000}))
    *_, last = read_until(
        easel,
        f"/api/runs/{run_id}/events",
        lambda item: isinstance(item, Event) and "tick 300\n" in item.data.get("text", ""),
    )
    assert isinstance(last, Event)
    items = read_until(
        easel, f"/sse/run/{run_id}", lambda item: isinstance(item, Cursor) and item.seq == last.seq
    )
    assert [item.type for item in items if isinstance(item, Event)] == ["run.start"]
    resumed = {"Last-Event-ID": str(last.seq)}
    quiet = read_until(easel, f"/sse/run/{run_id}", lambda item: isinstance(item, Comment), **resumed)
    assert [type(item) for item in quiet] == [Retry, Comment], "the cursor is known already"
    easel.cancel(run_id)


class EndedSubscription:
    """A subscription that has passed hidden events up to 7 when the server ends it."""

    cursor, has_seen_all = 0, False

    async def next(self) -> None:
        self.cursor = 7

    def end(self) -> None: ...

    def close(self) -> None: ...


@rule("RX-34")
async def test_stream_that_the_server_closes_sends_its_cursor_once_more() -> None:
    sent: list[bytes] = []

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    async def receive() -> Any:
        await asyncio.Event().wait()

    scope = {"extensions": {CONNECTION: {"limit_stalls": lambda: None}}}
    subscription: Any = EndedSubscription()
    await EventStream(subscription)(scope, receive, send)
    assert sent[-1] == b"id: 7\nretry: 1000\n\n"
    assert Parser().feed(sent[-1]) == [Retry(1000), Cursor(7)]


def test_live_stream_sends_events_as_they_happen(easel: LiveEasel) -> None:
    run_id = easel.start(WAITING)
    easel.stream_start(run_id)  # returns long before the run ends
    assert easel.view(run_id)["status"] == "running"
    easel.cancel(run_id)


def test_head_request_does_not_keep_the_connection(small_easel: LiveEasel) -> None:
    run_id = small_easel.start(WAITING)
    connection = http.client.HTTPConnection(*small_easel.address, timeout=30)
    try:
        connection.request("HEAD", f"/api/runs/{run_id}/events", headers=small_easel.bearer)
        assert connection.getresponse().read() == b""
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
    finally:
        connection.close()
        small_easel.cancel(run_id)


@rule("RX-36")
def test_log_is_read_in_pages_of_at_most_100_events(
    easel: LiveEasel, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = easel.finish(chatter(350))
    runs: Any = easel.instances[0].opened.runs
    read, sizes = runs.events_after, []

    async def record_page(run_id: str, cursor: int, limit: int) -> list[Any]:
        page = await read(run_id, cursor, limit)
        sizes.append((limit, len(page)))
        return page

    monkeypatch.setattr(runs, "events_after", record_page)
    events = easel.events(run_id, debug="1")
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert len(events) > 350
    assert sizes
    assert all(limit <= 100 and count <= 100 for limit, count in sizes)


# --- cursors ------------------------------------------------------------------------------------------------


def open_after(easel: LiveEasel, run_id: str, cursor: str, by: str, **query: str) -> httpx2.Response:
    """Open the stream after a cursor in the header or in the query."""
    headers = {"Last-Event-ID": cursor} if by == "header" else {}
    return easel.get(
        f"/api/runs/{run_id}/events",
        headers=headers,
        params=query | ({"last_event_id": cursor} if by == "query" else {}),
    )


@rule("RX-33", "RX-34", "RX-48")
@pytest.mark.parametrize("by", ["header", "query"])
def test_stream_resumes_after_its_cursor(easel: LiveEasel, by: str) -> None:
    run_id = easel.finish(TALK)
    log = easel.events(run_id, debug="1")
    for cursor in range(len(log)):
        answer = open_after(easel, run_id, str(cursor), by, debug="1")
        assert [item for item in Parser().feed(answer.content) if isinstance(item, Event)] == log[cursor:]


def test_stream_resumes_after_a_cursor_on_an_internal_event(easel: LiveEasel) -> None:
    run_id = easel.finish(TALK)
    assert easel.events(run_id, last_event_id=2)[0].seq == 3
    assert easel.events(run_id, last_event_id=4)[0].seq == 5


def test_cursor_in_the_header_overrides_the_query(easel: LiveEasel) -> None:
    run_id = easel.finish()
    for header, query, first in ((2, "0", 3), (0, "2", 1), (2, "999", 3), (2, "nonsense", 3)):
        answer = easel.get(
            f"/api/runs/{run_id}/events",
            headers={"Last-Event-ID": str(header)},
            params={"last_event_id": query},
        )
        assert answer.status_code == 200
        assert next(item.seq for item in Parser().feed(answer.content) if isinstance(item, Event)) == first
    bad = easel.get(
        f"/api/runs/{run_id}/events", headers={"Last-Event-ID": "x"}, params={"last_event_id": "1"}
    )
    assert bad.status_code == 400


@rule("RX-35")
@case("E7")
@pytest.mark.parametrize("by", ["header", "query"])
def test_cursor_at_done_returns_no_content(easel: LiveEasel, by: str) -> None:
    run_id = easel.finish()
    last = easel.view(run_id)["last_seq"]
    answer = open_after(easel, run_id, str(last), by)
    assert (answer.status_code, answer.content) == (204, b"")


def test_cursor_zero_is_valid_for_an_unstarted_run(easel: LiveEasel) -> None:
    session = new_session()
    active, waiting = easel.start(WAITING, session), easel.start("noop", session)
    assert easel.stream(waiting, last_event_id=1).status_code == 410
    easel.cancel(active)
    assert shape(easel.events(waiting, last_event_id=0))[0] == (1, "run.start")


@case("E5")
@rule("RS-34")
@pytest.mark.parametrize("by", ["header", "query"])
@pytest.mark.parametrize("says, cursor, status", ABUSED, ids=[row[0] for row in ABUSED])
def test_invalid_cursor_is_refused(easel: LiveEasel, says: str, cursor: str, status: int, by: str) -> None:
    run_id = easel.finish()
    answer = open_after(easel, run_id, cursor, by)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert error["name"] == {400: "BAD_INPUT", 410: "CURSOR_OUT_OF_RANGE"}[status]
    if status == 410:
        assert (error["details"]["oldest"], error["details"]["newest"]) == (1, 4)


@case("E5")
@pytest.mark.parametrize("cursor", ["", " ", "1\x001", "\x00", "\u0663", "\uff11"])
def test_cursor_with_odd_characters_in_the_query_is_refused(easel: LiveEasel, cursor: str) -> None:
    answer = easel.get(f"/api/runs/{easel.finish()}/events", params={"last_event_id": cursor})
    assert (answer.status_code, answer.json()["error"]["name"]) == (400, "BAD_INPUT")


@case("E5")
@pytest.mark.parametrize("value", [b"", b"\xb2", b"1\x001", b"\xff"])
def test_cursor_with_odd_bytes_in_the_header_is_refused(small_easel: LiveEasel, value: bytes) -> None:
    connection = http.client.HTTPConnection(*small_easel.address, timeout=30)
    try:
        connection.putrequest("GET", f"/api/runs/{small_easel.finish()}/events")
        connection.putheader("Authorization", f"Bearer {small_easel.token}")
        # Written into the buffer, because http.client refuses to send it.
        connection._buffer.append(b"Last-Event-ID: " + value)  # type: ignore[attr-defined]
        connection.endheaders()
        assert connection.getresponse().status == 400
    finally:
        connection.close()
