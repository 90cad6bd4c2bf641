"""SSE, chat and gateway alike cut a client that does not read, and keep nothing of one that reconnects."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import json
import os
import socket
import struct
import time
import tracemalloc
from collections import Counter
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import structlog

from easel.edges.delivery import Delivery
from easel.edges.gateway.connection import Connection
from easel.edges.http.sse import EventStream
from easel.edges.socket import Socket
from easel.errors import Unavailable
from easel.host.metrics import STALLED
from easel.host.streams import LogTail, Subscription
from tests.edges.http.canvas_calls import call
from tests.edges.http.live import LiveEasel, capture_log, script
from tests.requirements import rule
from tests.support.waiting import wait_for, wait_for_sync

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

pytestmark = pytest.mark.slow

STALL_SECONDS = 0.6
MAX_CUT_SECONDS = 10.0  # with filling the buffers of the kernel
HANG_SECONDS = 60.0
TRANSPORTS = ["sse", "chat", "gateway"]
SESSION, CANVAS = "bulky", "heavy"
SEND_BUFFER_BYTES = 65_536
# About 1 MB of events of less than 2 KB: more than the buffers of the kernel and the server take.
BULKY = script({"say": "so many words " * 70_000})
LIMITS = {"max_message_bytes": 20_000_000, "max_body_bytes": 30_000_000}
RECONNECTS = 1_000
AT_ONCE = 10
LEFT = (Socket, Connection, Delivery, EventStream, Subscription, LogTail)  # of which nothing may be left
MAX_BYTES_LEFT = 1_000  # per connection: caches and sets of Python grow; an idle connection takes 27,000


@pytest.fixture
def logged() -> Iterator[list[dict[str, Any]]]:
    """The log events of one test; restores the configuration of other packages."""
    configured = structlog.get_config()
    with capture_log() as events:
        yield events
    structlog.configure(**configured)


@pytest.fixture(scope="module")
def easel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LiveEasel, str]]:
    """A server with a long run and a heavy canvas. Returns it and the id of the run."""
    settings = {"stall_seconds": STALL_SECONDS, **LIMITS}
    with LiveEasel(
        tmp_path_factory.mktemp("easel"), settings=settings, send_buffer=SEND_BUFFER_BYTES
    ) as live:
        run_id = live.start(BULKY, SESSION)
        done = f"select 1 from runs where run_id = '{run_id}' and status = 'completed'"
        wait_for_sync(lambda: bool(live.sql(done)), within=HANG_SECONDS, what="the run ends")
        call(live, "canvas.create", canvasId=CANVAS, state={"text": "plain words " * 10_000})
        yield live, run_id


@pytest.fixture(scope="module")
def small_easel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    """A server with short logs, which has no work of its own while its memory is measured."""
    with LiveEasel(tmp_path_factory.mktemp("easel")) as live:
        call(live, "canvas.create", canvasId=CANVAS)
        call(live, "canvas.create", canvasId="small")
        live.finish(script({"say": "hello"}), "small")
        yield live


def head(easel: LiveEasel, path: str, *more: str) -> bytes:
    lines = [f"GET {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {easel.token}", *more]
    return "\r\n".join([*lines, "", ""]).encode()


def upgrade(easel: LiveEasel, path: str) -> bytes:
    key = base64.b64encode(os.urandom(16)).decode()
    names = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]
    return head(easel, path, *names, f"Sec-WebSocket-Key: {key}")


def frame(method: str, id_: str, **params: Any) -> bytes:
    """Return a masked text frame of the gateway; a mask of zeros leaves its bytes as they are."""
    text = json.dumps({"type": "req", "id": id_, "method": method, "params": params}).encode()
    return struct.pack("!BBH", 0x81, 0x80 | 126, len(text)) + bytes(4) + text


def connect_frame(client_id: str) -> bytes:
    return frame("connect", "0", client={"id": client_id})


def server_ends(client_port: int) -> int:
    """Return 1 while the server's side of a connection is open."""
    connections = psutil.Process().net_connections("tcp4")
    return sum(c.fd >= 0 and bool(c.raddr) and c.raddr.port == client_port for c in connections)


def count_stalled() -> float:
    return next(sample.value for metric in STALLED.collect() for sample in metric.samples)


# --- a client that does not read ----------------------------------------------------------------------------


@rule("RX-48")
@pytest.mark.parametrize("is_slow", [False, True], ids=["silent", "slow"])
@pytest.mark.parametrize("transport", [*TRANSPORTS, "sse behind an answer"])
def test_client_that_does_not_read_is_cut_after_the_same_time_with_the_same_reason(
    easel: tuple[LiveEasel, str], logged: list[dict[str, Any]], transport: str, *, is_slow: bool
) -> None:
    live, run_id = easel
    paths = {"chat": f"/ws/chat/{SESSION}", "gateway": "/ws"}
    path = paths.get(transport, f"/api/runs/{run_id}/events")
    before, began = count_stalled(), time.monotonic()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client.connect(live.address)
        if transport == "sse behind an answer":  # which fills the buffer before the stream begins
            client.sendall(head(live, f"/api/runs/{run_id}"))
        client.sendall(upgrade(live, path) if transport in paths else head(live, path))
        if transport == "gateway":
            while b"\r\n\r\n" not in client.recv(2048):
                pass
            requests = [frame("canvas.get", str(n + 1), canvasId=CANVAS) for n in range(30)]
            client.sendall(b"".join([connect_frame("deaf"), *requests]))

        def is_cut() -> bool:
            if is_slow:
                with contextlib.suppress(ConnectionResetError):
                    client.recv(64)
            return count_stalled() > before

        wait_for_sync(is_cut, within=MAX_CUT_SECONDS, what="the client is cut")
        assert time.monotonic() - began >= STALL_SECONDS, "it was cut too early"
        wait_for_sync(
            lambda: not server_ends(client.getsockname()[1]),
            within=HANG_SECONDS,
            what="its connection and what was buffered for it are gone",
        )
    assert count_stalled() == before + 1
    assert [line["path"] for line in logged if line["event"] == "stream.stalled"][-1] == path
    wait_for_sync(lambda: not live.do(count_left()), within=HANG_SECONDS, what="nothing is left of it")


def find_left() -> list[Any]:
    gc.collect()
    return [found for found in gc.get_objects() if isinstance(found, LEFT)]


async def count_left(known: Collection[int] = ()) -> Counter[str]:
    """Count what is left, without the objects with a known id."""
    return Counter(type(found).__name__ for found in find_left() if id(found) not in known)


def test_chat_ends_when_its_delivery_fails(small_easel: LiveEasel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that kept its connection would wait for events that never arrive."""
    live = small_easel

    async def fail(*_: Any) -> Any:
        raise Unavailable(what="The database")

    monkeypatch.setattr(live.instances[0].services.threads, "read", fail)
    # Less than the pings take that would end the connection, too.
    with socket.create_connection(live.address, timeout=MAX_CUT_SECONDS) as client:
        client.sendall(upgrade(live, "/ws/chat/small?last_event_id=0"))
        with contextlib.suppress(ConnectionResetError):
            while client.recv(2048):
                pass


# --- a client that reconnects -------------------------------------------------------------------------------


async def visit(live: LiveEasel, transport: str, number: int) -> None:
    """Connect, receive an event, and disconnect without a word."""
    reader, writer = await asyncio.open_connection(*live.address)
    try:
        match transport:
            case "sse":
                writer.write(head(live, "/sse/canvas/small"))
            case "chat":
                writer.write(upgrade(live, "/ws/chat/small"))
            case _:
                requests = [
                    frame("canvas.subscribe", "1", canvasId="small", afterSeq=0),
                    frame("canvas.open", "2", canvasId="heavy"),
                ]
                # Every second one has the id of a client that is connected.
                client = connect_frame("same" if number % 2 else f"client {number}")
                writer.write(upgrade(live, "/ws"))
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"".join([client, *requests]))
        awaited = b"message.delta" if transport == "chat" else b'"revision":1,'
        async with asyncio.timeout(HANG_SECONDS):
            if not (transport == "gateway" and number % 2):  # it may be replaced before its first event
                await reader.readuntil(awaited)
    except (asyncio.LimitOverrunError, ConnectionResetError):
        pass
    finally:
        writer.transport.abort()


async def visit_often(live: LiveEasel, transport: str, count: int) -> None:
    room = asyncio.Semaphore(AT_ONCE)

    async def visit_in_turn(number: int) -> None:
        async with room:
            await visit(live, transport, number)

    await asyncio.gather(*(visit_in_turn(number) for number in range(count)))


async def count_tasks() -> int:
    return len(asyncio.all_tasks())


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_client_that_reconnects_leaves_nothing_behind(
    small_easel: LiveEasel, logged: list[dict[str, Any]], transport: str
) -> None:
    live = small_easel
    tasks_before = 0
    # Such as of an exception that an earlier test's server logs only now.
    known = {id(found) for found in find_left()}

    async def has_settled() -> bool:
        left, tasks = (
            await asyncio.to_thread(live.do, count_left(known)),
            await asyncio.to_thread(live.do, count_tasks()),
        )
        if left or tasks > (tasks_before or tasks):
            return False
        for _ in range(2):  # the writer still opens and closes the views of connections that have ended
            await asyncio.to_thread(call, live, "canvas.patch", canvasId="small", title="Small")
        return True

    await visit_often(live, transport, 3 * AT_ONCE)
    await wait_for(has_settled, within=HANG_SECONDS, what="nothing is left of the first connections")
    tasks_before = await asyncio.to_thread(live.do, count_tasks())
    tracemalloc.start()
    try:
        await visit_often(live, transport, 3 * AT_ONCE)
        await wait_for(has_settled, within=HANG_SECONDS, what="nothing is left of the next connections")
        logged.clear()
        before = tracemalloc.get_traced_memory()[0]
        await visit_often(live, transport, RECONNECTS)
        await wait_for(has_settled, within=HANG_SECONDS, what="nothing is left of all connections")
        logged.clear()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < MAX_BYTES_LEFT * RECONNECTS, f"{grown} bytes are left of {RECONNECTS} connections"
    services = live.instances[0].services
    assert not services.revocation._watchers, "no credential is watched"
    assert not services.views._connections, "no connection has a view"
