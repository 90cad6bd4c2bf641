"""The bench's client: the minimum of HTTP/1.1 and SSE that posts a run and reads its log, so that the client
costs little.

The same client times Easel and the floors. It knows the paths of the run API, which the floors copy.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

STREAM_SECONDS = 60.0
# No stream of the bench lasts longer; one that does has lost an event.

_LENGTH = re.compile(rb"content-length:\s*(\d+)", re.IGNORECASE)
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3})")
_CHUNK = 256 * 1024
_END = b"0\r\n\r\n"
# The last chunk of a body: the server has ended the stream, though the connection stays.
_OVERLAP = len(b"\ndata:") - 1
# Kept of the last read: long enough to find a marker cut in two, short enough not to count one twice.


@dataclass(frozen=True, slots=True)
class Server:
    """The address of a server, and its token, if any."""

    url: str
    token: str = ""

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        assert parts.port is not None
        return parts.hostname, parts.port

    def request(self, method: str, path: str, body: bytes = b"", *, after: int | None = None) -> bytes:
        lines = [f"{method} {path} HTTP/1.1", f"host: {self.address[0]}:{self.address[1]}"]
        if self.token:
            lines.append(f"authorization: Bearer {self.token}")
        if after is not None:
            lines.append(f"last-event-id: {after}")
        if body:
            lines += ["content-type: application/json", f"content-length: {len(body)}"]
        return "\r\n".join([*lines, "", ""]).encode() + body

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        reader, writer = await asyncio.open_connection(*self.address, limit=4 * 1024 * 1024)
        try:
            yield Connection(self, reader, writer)
        finally:
            writer.close()


class Connection:
    """One kept-alive connection for requests with short answers."""

    def __init__(self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request and return its answer; the body is JSON unless it is bytes."""
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        self._writer.write(self._server.request(method, path, content))
        head = await self._reader.readuntil(b"\r\n\r\n")
        status = _status(head)
        length = _LENGTH.search(head)
        answer = await self._reader.readexactly(int(length[1])) if length else b""
        if not 200 <= status < 300:
            raise RuntimeError(f"{method} {path} answered {status}: {answer[:300]!r}")
        return json.loads(answer) if answer and b"json" in head.lower() else answer

    async def post_run(self, session_id: str, message: str) -> str:
        return (await self.ask("POST", "/api/runs", {"session_id": session_id, "message": message}))["run_id"]


@dataclass(frozen=True, slots=True)
class Stream:
    """The result of reading a run's log: time of the first and last event, their number, and the raw text."""

    opened_at: float
    first_at: float
    last_at: float
    events: int
    text: bytes


async def read_log(
    server: Server, run_id: str, *, after: int | None = None, events: int | None = None, keep: bool = False
) -> Stream:
    """Open the run's stream and read until `events` have arrived, or until it is done. Times are of the
    monotonic clock.
    """
    reader, writer = await asyncio.open_connection(*server.address, limit=4 * 1024 * 1024)
    try:
        async with asyncio.timeout(STREAM_SECONDS):
            opened_at = time.perf_counter()
            writer.write(server.request("GET", f"/api/runs/{run_id}/events", after=after))
            head = await reader.readuntil(b"\r\n\r\n")
            if _status(head) != 200:
                raise RuntimeError(f"the stream of {run_id} answered {head[:200]!r}")
            return await _events(reader, opened_at, events, keep)
    finally:
        writer.close()


async def _events(reader: asyncio.StreamReader, opened_at: float, wanted: int | None, keep: bool) -> Stream:
    kept = bytearray()
    tail = b""
    seen = 0
    first_at = last_at = 0.0
    while chunk := await reader.read(_CHUNK):
        last_at = time.perf_counter()
        if keep:
            kept += chunk
        window = tail + chunk
        seen += window.count(b"\ndata:")
        if seen and not first_at:
            first_at = last_at
        if window.endswith(_END) or (wanted is not None and seen >= wanted):
            break
        tail = window[-_OVERLAP:]
    if not first_at:
        raise RuntimeError("the stream ended without an event")
    return Stream(opened_at, first_at, last_at, seen, bytes(kept))


def _status(head: bytes) -> int:
    found = _STATUS.match(head)
    if not found:
        raise RuntimeError(f"not an HTTP answer: {head[:200]!r}")
    return int(found[1])
