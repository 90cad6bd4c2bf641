"""Streams that are cut and resumed anywhere deliver every event of the log once."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.edges.http.live import LiveEasel, chatter, script
from tests.edges.test_transports import server_ends
from tests.requirements import case, rule
from tests.support.length import IS_SHORT
from tests.support.proxy import Proxy
from tests.support.sse import Event, Follower, Stream
from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.slow

EVENTS = 500
AT_ONCE = 8
STALL_SECONDS = 0.6
HANG_SECONDS = 60.0
MAX_CHUNK_BYTES = 1_500_000  # several of the largest events; a slow reader may cost 5 MB
# About 3 MB of log in events of less than 2 KB: more than the buffers of the kernel and the server take.
BULKY = script(
    {"say": "so many words " * 200_000}, *({"think": "hm"} if n % 2 else {"say": "on. "} for n in range(200))
)
BULKY_LIMITS = {"max_message_bytes": 20_000_000, "max_body_bytes": 30_000_000}


def frames_of(body: bytes) -> list[bytes]:
    """Return the events of a stream as bytes, so that a comparison covers everything."""
    return [block for block in body.split(b"\n\n") if block.startswith(b"id: ")]


async def read_bytes(
    easel: LiveEasel,
    at: int,
    path: str,
    *,
    cursor: int | None = None,
    enough: int | None = None,
    helpings: list[int] | None = None,
) -> bytes:
    """Return the body of a stream, or its first `enough` bytes before dropping the connection."""
    host, _, port = easel.instances[at].base_url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    header = f"Last-Event-ID: {cursor}\r\n" if cursor is not None else ""
    try:
        head = (
            f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n"
            f"Authorization: Bearer {easel.token}\r\n{header}\r\n"
        )
        writer.write(head.encode())
        assert b" 200 " in (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0]
        body = b""
        while (enough is None or len(body) < enough) and (size := int(await reader.readuntil(b"\r\n"), 16)):
            body += (await reader.readexactly(size + 2))[:-2]
            if helpings is not None:
                helpings.append(size)
        return body[:enough]
    finally:
        writer.transport.abort()


@pytest.fixture(scope="module")
def long_run(two_edges: LiveEasel) -> str:
    return two_edges.finish(chatter(EVENTS - 4))


@case("E2", "E4")
@rule("RX-03", "RX-34", "RX-48")
async def test_stream_cut_after_every_event_resumes_at_the_other_instance(
    two_edges: LiveEasel, long_run: str
) -> None:
    path = f"/api/runs/{long_run}/events?debug=1"
    body = await read_bytes(two_edges, 0, path)
    log = frames_of(body)
    assert len(log) == EVENTS
    room = asyncio.Semaphore(AT_ONCE)

    async def cut_after(k: int) -> None:
        async with room:
            end_of_k = body.index(log[k - 1]) + len(log[k - 1]) + 2
            before = frames_of(await read_bytes(two_edges, k % 2, path, enough=end_of_k))
            by_query, cursor = (f"{path}&last_event_id={k}", None) if k % 3 else (path, k)
            after = frames_of(await read_bytes(two_edges, 1 - k % 2, by_query, cursor=cursor))
            assert before + after == log, f"cut after {k}"

    await asyncio.gather(*(cut_after(k) for k in range(1, EVENTS, 4 if IS_SHORT else 1)))


@case("E3")
@rule("RX-34", "RX-48")
async def test_stream_cut_at_any_byte_resumes_without_gap_or_repetition(two_edges: LiveEasel) -> None:
    run_id = two_edges.finish(
        script(
            {"say": "über"},
            {"call": "gsv__Echo", "args": {"value": "\U0001f469\u200d\U0001f680"}},
            {"say": "x"},
        )
    )
    log = two_edges.events(run_id)
    with Proxy.before(two_edges.base_url) as proxy:
        size = 900 + len(two_edges.stream(run_id).content)  # with the headers and the chunk sizes
        proxy.cut_in_turn(cuts := range(0, size, 20 if IS_SHORT else 5))
        room = asyncio.Semaphore(AT_ONCE * 2)

        async def follow() -> None:
            async with room:
                urls = [proxy.url(two_edges.base_url), two_edges.instances[1].base_url]
                follower = Follower(
                    urls, run_id, two_edges.token, patience=HANG_SECONDS
                )  # not through the proxy
                assert await follower.read_to_end(within=HANG_SECONDS) == log

        await asyncio.gather(*(follow() for _ in cuts))
        assert proxy.accepted == len(cuts)


async def next_event(items: AsyncIterator[object]) -> Event:
    async for item in items:
        if isinstance(item, Event):
            return item
    raise AssertionError("the stream ended without an event")


# --- retention ----------------------------------------------------------------------------------------------


@rule("RS-34")
def test_cursor_in_a_pruned_log_is_gone_and_resumes_at_the_oldest_event(easel: LiveEasel) -> None:
    run_id = easel.finish(script({"say": "soon forgotten"}))
    last = easel.events(run_id)[-1]
    assert easel.prune() >= 1
    for cursor in (0, 1, last.seq - 2):
        answer = easel.stream(run_id, last_event_id=cursor)
        assert answer.status_code == 410
        error = answer.json()["error"]
        assert error["name"] == "CURSOR_OUT_OF_RANGE"
        assert (error["details"]["oldest"], error["details"]["newest"]) == (last.seq, last.seq)
    assert easel.events(run_id, last_event_id=last.seq - 1) == [last]
    assert easel.events(run_id) == [last], "without a cursor the stream starts at the oldest event"
    assert easel.stream(run_id, last_event_id=last.seq).status_code == 204
    assert easel.view(run_id)["status"] == "completed"


@rule("RS-34")
async def test_stream_of_a_log_pruned_while_reading_is_cut_without_a_gap(large_easel: LiveEasel) -> None:
    run_id = large_easel.finish_unread(BULKY)
    async with slow_stream(large_easel, run_id) as stream:
        items = stream.items()
        seen = [await next_event(items)]
        large_easel.prune()
        seen += [item async for item in items if isinstance(item, Event)]
    numbers = [event.seq for event in seen]
    assert numbers == list(range(1, len(numbers) + 1)), f"a hole: {numbers[-3:]}"
    assert numbers[-1] < large_easel.view(run_id)["last_seq"], "it was pruned while it was read"
    assert large_easel.stream(run_id, last_event_id=numbers[-1]).status_code == 410


# --- readers that stop reading ------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def slow_stream(easel: LiveEasel, run_id: str) -> AsyncIterator[Stream]:
    """Open a stream with internal events, so that its numbers have no gap, with small kernel buffers."""
    with_internal = f"{run_id}/events?debug=1&x="
    async with Stream.open(easel.base_url, with_internal, easel.token, receive_buffer=2048) as stream:
        yield stream


@pytest.fixture(scope="module")
def large_easel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    """A server that accepts long messages, for long logs, with small kernel buffers."""
    with LiveEasel(tmp_path_factory.mktemp("easel"), settings=BULKY_LIMITS, send_buffer=65_536) as live:
        yield live


@pytest.fixture(scope="module")
def strict_easel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    """A server that cuts a stalled reader early; the default is 20 s."""
    settings = {"stall_seconds": STALL_SECONDS, "heartbeat_seconds": 0.2}
    with LiveEasel(tmp_path_factory.mktemp("easel"), settings=settings) as live:
        yield live


@case("E8")
async def test_long_log_is_sent_in_small_chunks(large_easel: LiveEasel) -> None:
    """A chunk stays in memory until the reader has taken it."""
    run_id = large_easel.finish_unread(BULKY)
    helpings: list[int] = []
    await read_bytes(large_easel, 0, f"/api/runs/{run_id}/events?debug=1", helpings=helpings)
    assert sum(helpings) > 2 * MAX_CHUNK_BYTES
    assert max(helpings) < MAX_CHUNK_BYTES


async def test_reader_of_an_idle_run_is_not_cut_as_stalled(strict_easel: LiveEasel) -> None:
    run_id = strict_easel.start(script({"wait_ms": int(STALL_SECONDS * 3000)}))
    follower = Follower([strict_easel.base_url], run_id, strict_easel.token)
    assert await follower.read_to_end(within=HANG_SECONDS) == strict_easel.events(run_id)
    assert follower.connected == 1


def test_reader_that_disconnects_during_a_log_read_is_removed(
    strict_easel: LiveEasel, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = strict_easel.start(script({"say": "x"}, {"wait_ms": 600_000}))
    strict_easel.stream_start(run_id)
    wait_for_sync(
        lambda: 'easel_subscribers{log="run"} 0.0' in strict_easel.get("/metrics").text,
        within=HANG_SECONDS,
        what="the stream has no viewer",
    )
    runs: Any = strict_easel.instances[0].opened.runs
    read, is_reading, may_go_on = runs.events_after, threading.Event(), asyncio.Event()

    async def blocking_read(*args: Any) -> list[Any]:
        is_reading.set()
        await may_go_on.wait()
        return await read(*args)

    monkeypatch.setattr(runs, "events_after", blocking_read)
    with socket.create_connection(strict_easel.address) as leaving:
        ask = (
            f"GET /api/runs/{run_id}/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "
            f"{strict_easel.token}\r\n\r\n"
        )
        leaving.sendall(ask.encode())
        assert is_reading.wait(HANG_SECONDS)
        ours = leaving.getsockname()[1]
    wait_for_sync(
        lambda: not server_ends(ours), within=HANG_SECONDS, what="the server knows that its reader has left"
    )
    strict_easel.do(_set(may_go_on))
    wait_for_sync(
        lambda: 'easel_subscribers{log="run"} 0.0' in strict_easel.get("/metrics").text,
        within=HANG_SECONDS,
        what="and so does the tail",
    )
    strict_easel.cancel(run_id)


async def _set(event: asyncio.Event) -> None:
    event.set()


@case("D3")
def test_streams_over_the_limit_are_refused_with_retry_after(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with (
        LiveEasel(tmp_path_factory.mktemp("easel"), settings={"max_streams": 2}) as easel,
        contextlib.ExitStack() as open_streams,
    ):
        run_id = easel.start(script({"wait_ms": 600_000}))
        http = open_streams.enter_context(easel.stranger())
        for _ in range(2):
            open_streams.enter_context(http.stream("GET", f"/api/runs/{run_id}/events", headers=easel.bearer))
        answer = easel.stream(run_id)
        assert (answer.status_code, answer.json()["error"]["name"]) == (429, "TOO_MANY")
        assert int(answer.headers["retry-after"]) >= 1
        open_streams.close()
        wait_for_sync(
            lambda: can_watch(easel, run_id),
            within=HANG_SECONDS,
            what="there is room again once the others have left",
        )


def can_watch(easel: LiveEasel, run_id: str) -> bool:
    with (
        easel.stranger() as http,
        http.stream("GET", f"/api/runs/{run_id}/events", headers=easel.bearer) as answer,
    ):
        return answer.status_code == 200
