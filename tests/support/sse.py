"""A strict client of Easel's event streams, on a bare socket.

Owns the parsing of `text/event-stream` over HTTP/1.1, the contract of one stream (`id` is the envelope's
`seq`, `event` its `type`, numbers rise, `done` is last) and resuming with a cursor across several servers.
Has no fixture and no database: a broken contract raises `ContractBroken`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from tests.support.strict import ContractBroken, check_event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

RECONNECT_SECONDS = 0.05
# Pause between two attempts of a follower: short, so that a drill measures the servers and not its own
# client.
CONNECT_SECONDS = 20.0
# For a loopback connect and its response head; a server that needs longer hangs, however busy the machine is.
TIMEOUT_SECONDS = 5.0
# For each server of a follower, before it tries the next one.

CursorBy = Literal["header", "query"]


class Refused(Exception):
    """The server answered with an error."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        super().__init__(f"{status}: {body[:500]!r}")
        self.status, self.headers, self.body = status, headers, body

    @property
    def error(self) -> dict[str, Any]:
        return json.loads(self.body)["error"]


class StreamRefused(Refused):
    """The server answered with something other than a stream."""


@dataclass(frozen=True, slots=True)
class Event:
    seq: int
    type: str
    ts: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Comment:
    text: str


@dataclass(frozen=True, slots=True)
class Retry:
    milliseconds: int


@dataclass(frozen=True, slots=True)
class Cursor:
    """An `id` without data: the stream has passed events that it does not show."""

    seq: int


Item: TypeAlias = Event | Comment | Retry | Cursor


class Parser:
    """Parses bytes into items; an incomplete event at the end of a cut connection is never an event."""

    def __init__(self) -> None:
        self._rest = b""
        self._fields: dict[str, str] = {}

    def feed(self, chunk: bytes) -> list[Item]:
        self._rest += chunk
        *lines, self._rest = self._rest.split(b"\n")
        items: list[Item] = []
        for raw in lines:
            item = self._line(raw.removesuffix(b"\r").decode())  # invalid UTF-8 is a broken contract too
            if item is not None:
                items.append(item)
        return items

    def _line(self, line: str) -> Item | None:
        if line == "":
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "":
                return Comment(value)
            case "retry":
                if not value.isdecimal():
                    raise ContractBroken(f"retry is not a number: {line!r}")
                return Retry(int(value))
            case "id" | "event" | "data":
                if name in self._fields:
                    raise ContractBroken(f"{name} twice in one event: {line!r}")
                self._fields[name] = value
                return None
            case _:
                raise ContractBroken(f"unknown field: {line!r}")

    def _dispatch(self) -> Event | Cursor | None:
        fields, self._fields = self._fields, {}
        if not fields:
            return None
        if set(fields) == {"id"}:
            return Cursor(int(fields["id"]))
        if set(fields) != {"id", "event", "data"}:
            raise ContractBroken(f"an event needs id, event and data: {fields}")
        return _checked(fields)


def _checked(fields: dict[str, str]) -> Event:
    event = event_of(json.loads(fields["data"]))
    if fields["id"] != str(event.seq):
        raise ContractBroken(f"id {fields['id']!r} is not seq {event.seq!r}")
    if fields["event"] != event.type:
        raise ContractBroken(f"event {fields['event']!r} is not type {event.type!r}")
    return event


def event_of(envelope: Any) -> Event:
    """Check and return an envelope, the same on every transport."""
    if not isinstance(envelope, dict) or set(envelope) != {"seq", "type", "ts", "data"}:
        raise ContractBroken(f"not an envelope: {str(envelope)[:300]}")
    seq, kind, ts, data = envelope["seq"], envelope["type"], envelope["ts"], envelope["data"]
    if not isinstance(seq, int) or seq < 1 or not isinstance(kind, str):
        raise ContractBroken(f"seq {seq!r} is no place in a log, or {kind!r} no type")
    if not isinstance(data, dict) or "visibility" not in data:
        raise ContractBroken(f"data without visibility: {data!r}")
    if datetime.fromisoformat(ts).tzinfo is None:
        raise ContractBroken(f"ts {ts!r} has no zone")
    check_event(kind, data)
    return Event(seq, kind, ts, data)


class Stream:
    """One connection to one run's events. `async with Stream.open(…) as stream: async for item in
    stream.items()`.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, status: int, headers: dict[str, str]
    ) -> None:
        self.status, self.headers = status, headers
        self.ended_in_order = False
        """The server closed the body as HTTP wants it, instead of vanishing."""
        self._reader, self._writer = reader, writer
        self._parser = Parser()
        self._chunk_left = 0
        self._is_chunked = headers.get("transfer-encoding") == "chunked"

    @classmethod
    def open(
        cls,
        base_url: str,
        run_id: str,
        token: str,
        *,
        after: int | None = None,
        by: CursorBy = "header",
        receive_buffer: int | None = None,
        patience: float = CONNECT_SECONDS,
    ) -> AbstractAsyncContextManager[Stream]:
        """Open a run's log."""
        path = f"/api/runs/{run_id}/events"
        return cls.at(
            base_url, path, token, after=after, by=by, receive_buffer=receive_buffer, patience=patience
        )

    @classmethod
    @contextlib.asynccontextmanager
    async def at(
        cls,
        base_url: str,
        path: str,
        token: str,
        *,
        after: int | None = None,
        by: CursorBy = "header",
        receive_buffer: int | None = None,
        patience: float = CONNECT_SECONDS,
    ) -> AsyncIterator[Stream]:
        """Open any event stream; `path` may have a query.

        Raises `StreamRefused` for any answer but 200 and 204, `OSError` or `EOFError` if there is none.
        """
        headers = {"Accept": "text/event-stream", "Authorization": f"Bearer {token}"}
        if after is not None and by == "header":
            headers["Last-Event-ID"] = str(after)
        elif after is not None:
            path += f"{'&' if '?' in path else '?'}last_event_id={after}"
        reader, writer = await _connect(base_url, receive_buffer, patience)
        try:
            async with asyncio.timeout(patience):
                stream = await cls._ask(reader, writer, urlsplit(base_url).netloc, path, headers)
            yield stream
        finally:
            writer.transport.abort()

    @classmethod
    async def _ask(
        cls,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        host: str,
        path: str,
        headers: dict[str, str],
    ) -> Stream:
        lines = [
            f"GET {path} HTTP/1.1",
            f"Host: {host}",
            *(f"{name}: {value}" for name, value in headers.items()),
            "",
            "",
        ]
        writer.write("\r\n".join(lines).encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(head[0].split()[1])
        answered = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:] if line)
        }
        if status not in (200, 204):
            body = await reader.readexactly(int(answered.get("content-length", "0")))
            raise StreamRefused(status, answered, body)
        if status == 200 and not answered.get("content-type", "").startswith("text/event-stream"):
            raise ContractBroken(f"not an event stream: {answered}")
        return cls(reader, writer, status, answered)

    async def items(self) -> AsyncIterator[Item]:
        """Yield items until the body ends."""
        while (batch := await self.read()) is not None:
            for item in batch:
                yield item

    async def read(self, at_most: int = 65536) -> list[Item] | None:
        """Return the items that the next bytes complete, None at the end, for a reader that chooses its own
        pace.
        """
        try:
            chunk = await self._read_body(at_most)
        except (OSError, EOFError):
            return None
        return None if chunk is None else self._parser.feed(chunk)

    async def _read_body(self, at_most: int) -> bytes | None:
        if self.status == 204:
            self.ended_in_order = True
            return None
        if not self._is_chunked:
            return await self._reader.read(at_most) or None
        if self._chunk_left == 0:
            size = (await self._reader.readuntil(b"\r\n")).split(b";")[0]
            self._chunk_left = int(size, 16)
            if self._chunk_left == 0:
                self.ended_in_order = True
                return None
        chunk = await self._reader.read(min(at_most, self._chunk_left))
        if not chunk:
            return None
        self._chunk_left -= len(chunk)
        if self._chunk_left == 0:
            await self._reader.readexactly(2)
        return chunk


async def _connect(
    base_url: str, receive_buffer: int | None, patience: float
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(base_url)
    raw = socket.socket()
    raw.setblocking(False)
    limit = 65536
    if receive_buffer is not None:
        # Small buffers on our side, so that a slow reader is slow for the server too.
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        limit = receive_buffer
    try:
        async with asyncio.timeout(patience):
            await asyncio.get_running_loop().sock_connect(raw, (parts.hostname, parts.port))
        return await asyncio.open_connection(sock=raw, limit=limit)
    except BaseException:
        raw.close()
        raise


@dataclass
class Follower:
    """A well-behaved client: reads a run to its `done`, and after any cut resumes after its last event on the
    next server.
    """

    base_urls: Sequence[str]
    run_id: str
    token: str
    after: int = 0
    by: CursorBy = "header"
    patience: float = TIMEOUT_SECONDS
    events: list[Event] = field(default_factory=list[Event])
    retries: list[int] = field(default_factory=list[int])
    connected: int = 0
    refused: int = 0
    comments: int = 0
    passed: int = 0
    """The last cursor that was sent without an event."""
    ended_in_order: bool = False
    """Whether the last connection was closed by the server as HTTP wants it."""
    polite_partings: int = 0
    """Connections that the server closed in order before the end, its last word being when to come back."""
    _said_retry_last: bool = False
    _items: AsyncIterator[Event] | None = None

    @property
    def cursor(self) -> int:
        return max(self.events[-1].seq if self.events else self.after, self.passed)

    @property
    def is_done(self) -> bool:
        return bool(self.events) and self.events[-1].type == "done"

    async def read_until(self, is_reached: Callable[[Event], bool], *, within: float) -> Event:
        """Read to the first event that satisfies the predicate. The connection stays open for the
        next call.
        """
        try:
            async with asyncio.timeout(within):
                if self._items is None:
                    self._items = self._follow()
                async for event in self._items:
                    if is_reached(event):
                        return event
        except TimeoutError:
            raise AssertionError(f"the awaited event did not come within {within} s: {self}") from None
        raise ContractBroken(
            f"{self.run_id} ended before the awaited event: {[e.type for e in self.events[-5:]]}"
        )

    def __str__(self) -> str:
        comments = f"{self.comments} comments, {self.connected} connections, {self.refused} refused"
        return f"{self.run_id} at {self.cursor} of {self.base_urls}, {comments}, last {self.events[-1:]}"

    async def read_to_end(self, *, within: float) -> list[Event]:
        if not self.is_done:
            await self.read_until(lambda event: event.type == "done", within=within)
            assert self._items is not None
            async with asyncio.timeout(within):
                async for event in self._items:
                    raise ContractBroken(f"{event.type} came after done")
        return self.events

    async def close(self) -> None:
        if self._items is not None:
            await self._items.aclose()  # type: ignore[attr-defined]

    async def _follow(self) -> AsyncIterator[Event]:
        turn = 0
        while not self.is_done:
            base_url = self.base_urls[turn % len(self.base_urls)]
            turn += 1
            try:
                after = self.cursor or None
                async with Stream.open(
                    base_url, self.run_id, self.token, after=after, by=self.by, patience=self.patience
                ) as stream:
                    self.connected += 1
                    if stream.status == 204:
                        raise ContractBroken(f"204 at cursor {self.cursor}, but no done was delivered")
                    async for event in self._events_of(stream):
                        yield event
                    self.ended_in_order = stream.ended_in_order
                    self.polite_partings += (
                        stream.ended_in_order and self._said_retry_last and not self.is_done
                    )
            except StreamRefused as refusal:
                if refusal.status < 500:
                    raise
                self.refused += 1
            except (OSError, EOFError):
                self.refused += 1
            if not self.is_done:
                await asyncio.sleep(RECONNECT_SECONDS)

    async def _events_of(self, stream: Stream) -> AsyncIterator[Event]:
        async for item in stream.items():
            if not isinstance(item, Cursor):  # it is dispatched after the lines of its block
                self._said_retry_last = isinstance(item, Retry)
            match item:
                case Cursor(seq):
                    if seq <= self.cursor:
                        raise ContractBroken(f"cursor {seq} after {self.cursor}")
                    self.passed = seq
                case Retry(milliseconds):
                    self.retries.append(milliseconds)
                case Comment():
                    self.comments += 1
                case Event():
                    if self.is_done:
                        raise ContractBroken(f"{item.type} came after done")
                    if item.seq <= self.cursor:
                        raise ContractBroken(f"seq {item.seq} after {self.cursor}")
                    self.events.append(item)
                    yield item


async def follow(
    base_urls: Sequence[str],
    run_id: str,
    token: str,
    *,
    within: float,
    after: int = 0,
    by: CursorBy = "header",
) -> list[Event]:
    """Return the run's public events after the cursor, to `done`, across any number of connections."""
    return await Follower(base_urls, run_id, token, after=after, by=by).read_to_end(within=within)
