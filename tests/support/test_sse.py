"""The strict stream client is strict and resumes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING

import pytest

from tests.support.sse import (
    Comment,
    ContractBroken,
    Cursor,
    Event,
    Follower,
    Parser,
    Retry,
    StreamRefused,
    follow,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def wire(number: int, kind: str = "message.delta", **changes: object) -> bytes:
    envelope: dict[str, object] = {
        "seq": number,
        "type": kind,
        "ts": "2026-11-01T00:00:00Z",
        "data": {"visibility": "public"},
    }
    fields = {"id": str(number), "event": kind, "data": json.dumps(envelope | changes)}
    return ("".join(f"{name}: {value}\n" for name, value in fields.items()) + "\n").encode()


def test_items_are_complete_wherever_the_bytes_are_cut() -> None:
    whole = b"id: 7\n: hello\n\nretry: 250\n\n" + wire(1) + wire(2, "done")
    for cut in range(len(whole)):
        parser = Parser()
        items = parser.feed(whole[:cut]) + parser.feed(whole[cut:])
        assert [type(item) for item in items] == [Comment, Cursor, Retry, Event, Event]


def test_half_an_event_is_not_an_event() -> None:
    assert Parser().feed(wire(1)[:-1]) == []


BREACHES = [
    # says                          bytes
    ("id is not seq", wire(1, seq=2)),
    ("event is not type", wire(1, type="other")),
    ("no zone", wire(1, ts="2026-11-01T00:00:00")),
    ("no visibility", wire(1, data={})),
    ("extra key", wire(1, more=1)),
    ("unknown field", b"color: red\n"),
    ("no id", b"event: x\ndata: {}\n\n"),
    ("retry is no number", b"retry: soon\n"),
    ("two ids", b"id: 1\nid: 1\n"),
]


@pytest.mark.parametrize("says, raw", BREACHES, ids=[says for says, _ in BREACHES])
def test_broken_contract_is_raised(says: str, raw: bytes) -> None:
    with pytest.raises(ContractBroken):
        Parser().feed(raw)


class FakeServer:
    """Answers each request with the next prepared response, then closes; keeps the requests."""

    def __init__(self, *responses: bytes) -> None:
        self.requests: list[str] = []
        self._responses = list(responses)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            self.requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
            writer.write(self._responses.pop(0))
            await writer.drain()
        writer.close()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        async with await asyncio.start_server(self.answer, "127.0.0.1", 0) as server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(body: bytes) -> bytes:
    return f"{len(body):x}\r\n".encode() + body + b"\r\n"


def refusal(status: str, body: bytes = b"{}") -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


async def test_follower_resumes_after_its_last_complete_event() -> None:
    second = chunk(wire(2))
    server = FakeServer(
        HEAD + chunk(wire(1)) + second[:20], refusal("503 Busy"), HEAD + second + chunk(wire(3, "done")) + END
    )
    async with server.listening() as url:
        events = await follow([url], "r1", "secret", within=20)
    assert [event.seq for event in events] == [1, 2, 3]
    assert "Last-Event-ID" not in server.requests[0]
    assert "Last-Event-ID: 1\r\n" in server.requests[2]
    assert "Authorization: Bearer secret\r\n" in server.requests[2]


async def test_cursor_may_be_sent_in_the_query() -> None:
    server = FakeServer(HEAD + chunk(wire(8, "done")) + END)
    async with server.listening() as url:
        await follow([url], "r1", "secret", within=20, after=7, by="query")
    assert server.requests[0].startswith("GET /api/runs/r1/events?last_event_id=7 HTTP/1.1\r\n")


WRONG_BODIES = [
    ("a number twice", chunk(wire(1)) + chunk(wire(1))),
    ("something after done", chunk(wire(1, "done")) + chunk(wire(2))),
]


@pytest.mark.parametrize("says, body", WRONG_BODIES, ids=[says for says, _ in WRONG_BODIES])
async def test_follower_rejects_a_wrong_stream(says: str, body: bytes) -> None:
    async with FakeServer(HEAD + body + END).listening() as url:
        with pytest.raises(ContractBroken):
            await follow([url], "r1", "secret", within=20)


@pytest.mark.parametrize("end, in_order", [(END, True), (b"", False)])
async def test_follower_reports_how_its_last_connection_ended(end: bytes, in_order: bool) -> None:
    async with FakeServer(HEAD + chunk(wire(1, "done")) + end).listening() as url:
        follower = Follower([url], "r1", "secret")
        await follower.read_to_end(within=20)
    assert follower.ended_in_order is in_order


@pytest.mark.parametrize(
    "last_word, polite", [(chunk(b"retry: 9\n\n") + END, 1), (chunk(b"retry: 9\n\n"), 0), (END, 0)]
)
async def test_follower_counts_orderly_closes(last_word: bytes, polite: int) -> None:
    async with FakeServer(
        HEAD + chunk(wire(1)) + last_word, HEAD + chunk(wire(2, "done")) + END
    ).listening() as url:
        follower = Follower([url], "r1", "secret")
        await follower.read_to_end(within=20)
    assert follower.polite_partings == polite


async def test_permanent_refusal_is_raised() -> None:
    async with FakeServer(
        refusal("410 Gone", b'{"error":{"name":"CURSOR_OUT_OF_RANGE"}}')
    ).listening() as url:
        with pytest.raises(StreamRefused) as refused:
            await follow([url], "r1", "secret", within=20)
    assert refused.value.error["name"] == "CURSOR_OUT_OF_RANGE"


async def test_follower_can_stop_at_an_event_and_go_on() -> None:
    server = FakeServer(HEAD + chunk(wire(1) + wire(2)) + chunk(wire(3, "done")) + END)
    async with server.listening() as url:
        follower = Follower([url], "r1", "secret")
        assert (await follower.read_until(lambda event: event.seq == 1, within=20)).seq == 1
        assert [event.seq for event in await follower.read_to_end(within=20)] == [1, 2, 3]
        assert follower.connected == 1
