"""A strict client of Easel's chat, `/ws/chat/{thread_id}`.

Owns the contract of one connection (text frames, each an envelope of the narrative or an error; sequence
numbers rise, by one for a viewer of internal events) and resuming with a cursor across several servers. Has
no fixture and no database: a broken contract raises `ContractBroken`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlencode, urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.frames import CloseCode

from easel.edges.http.chat_frames import ChatNotice
from tests.support.sse import (
    CONNECT_SECONDS,
    RECONNECT_SECONDS,
    TIMEOUT_SECONDS,
    Event,
    Refused,
    event_of,
)
from tests.support.strict import ContractBroken, check, check_error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from websockets.typing import Origin

PUBLIC_TYPES = frozenset({"message.delta", "message.completed", "tool.call", "tool.result"})
INTERNAL_TYPES = frozenset({"reasoning.delta", "step.completed"})
# Close codes after which a client reconnects: the server stops, or this connection was replaced.
POLITE_CLOSES = frozenset({CloseCode.NORMAL_CLOSURE, CloseCode.GOING_AWAY, CloseCode.SERVICE_RESTART})


class ChatRefused(Refused):
    """The server refused the handshake."""


@dataclass(frozen=True, slots=True)
class Complaint:
    """The server's error for a frame that it could not accept; the connection stays open."""

    code: int
    name: str
    message: str
    details: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Warned:
    """The server's warnings about unknown members of a frame that it has accepted."""

    warnings: list[str]


@dataclass(frozen=True, slots=True)
class Pong:
    """The server's answer to a ping."""


Heard: TypeAlias = Event | Complaint | Warned | Pong


def heard_in(frame: str | bytes, *, debug: bool) -> Heard:
    if isinstance(frame, bytes):
        raise ContractBroken(f"a binary frame: {frame[:100]!r}")
    said = json.loads(frame)
    if isinstance(said, dict) and said.get("type") in ("error", "warnings", "pong"):
        check(said, ChatNotice)
        match said:
            case {"error": error}:
                check_error(error)
                return Complaint(error["code"], error["name"], error["message"], error.get("details", {}))
            case {"warnings": warnings}:
                return Warned(warnings)
            case _:
                return Pong()
    event = event_of(said)
    if event.type not in (PUBLIC_TYPES | INTERNAL_TYPES if debug else PUBLIC_TYPES):
        raise ContractBroken(f"{event.type} has no place in a chat")
    if event.data["visibility"] != ("internal" if event.type in INTERNAL_TYPES else "public"):
        raise ContractBroken(f"{event.type} is {event.data['visibility']}")
    return event


class Chat:
    """One connection to one thread. `async with Chat.open(…) as chat: async for event in chat.events()`."""

    def __init__(self, connection: ClientConnection, *, debug: bool) -> None:
        self._connection, self._debug = connection, debug
        self.complaints: list[Complaint] = []

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        base_url: str,
        thread_id: str,
        token: str | None,
        *,
        after: object = None,
        debug: bool = False,
        origin: str | None = None,
        patience: float = CONNECT_SECONDS,
        **headers: str,
    ) -> AsyncIterator[Chat]:
        """Connect. Raises `ChatRefused` for any answer but a handshake, `OSError` or `EOFError` if there is
        none. Without a token none is sent.
        """
        query = ({} if after is None else {"last_event_id": str(after)}) | ({"debug": "1"} if debug else {})
        given = ({} if token is None else {"Authorization": f"Bearer {token}"}) | headers
        where = f"ws://{urlsplit(base_url).netloc}/ws/chat/{thread_id}" + (
            f"?{urlencode(query)}" if query else ""
        )
        try:
            connection = await connect(
                where,
                origin=origin_of(origin),
                additional_headers=given,
                compression=None,
                open_timeout=patience,
                ping_interval=None,
                # Otherwise reading stops while we are behind, and the close handshake times out.
                max_queue=None,
                proxy=None,
            )
        except InvalidStatus as refusal:
            answer = refusal.response
            told = {name.lower(): value for name, value in answer.headers.raw_items()}
            raise ChatRefused(answer.status_code, told, bytes(answer.body)) from None
        except (InvalidHandshake, TimeoutError) as failure:
            raise EOFError(f"no handshake: {failure!r}") from None
        try:
            yield cls(connection, debug=debug)
        finally:
            # Drop the connection without a close handshake, as when a laptop sleeps.
            connection.transport.abort()
            await connection.wait_closed()

    async def say(self, text: str, key: str | None = None) -> None:
        await self.send(
            json.dumps({"type": "message", "text": text} | ({} if key is None else {"idempotency_key": key}))
        )

    async def cancel(self) -> None:
        await self.send('{"type":"cancel"}')

    async def send(self, frame: str | bytes) -> None:
        """Send any frame. Raises `EOFError` after the connection has ended."""
        try:
            await self._connection.send(frame)
        except ConnectionClosed as end:
            raise EOFError(str(end)) from None

    async def leave(self) -> None:
        """Close with a handshake, as a page does. Leaving the `async with` drops the connection
        without one.
        """
        await self._connection.close(CloseCode.GOING_AWAY)

    async def hear(self) -> Heard | None:
        """Return the next frame, or None at the end of the connection."""
        try:
            frame = await self._connection.recv()
        except ConnectionClosed:
            return None
        heard = heard_in(frame, debug=self._debug)
        if isinstance(heard, Complaint):
            self.complaints.append(heard)
        return heard

    async def events(self) -> AsyncIterator[Event]:
        """Yield events until the connection ends; collect complaints separately."""
        while (heard := await self.hear()) is not None:
            if isinstance(heard, Event):
                yield heard

    @property
    def ended_in_order(self) -> bool:
        """Whether the server closed with a handshake."""
        return self._connection.close_code in POLITE_CLOSES

    @property
    def close_code(self) -> int | None:
        return self._connection.close_code


def origin_of(text: str | None) -> Origin | None:
    return None if text is None else text  # type: ignore[return-value]  a test may claim to be anyone


@dataclass
class ChatFollower:
    """A well-behaved client: reads a thread, and after any cut resumes after its last event on the next
    server.
    """

    base_urls: Sequence[str]
    thread_id: str
    token: str
    after: int = 0
    debug: bool = False
    events: list[Event] = field(default_factory=list[Event])
    connected: int = 0
    refused: int = 0
    _items: AsyncIterator[Event] | None = None

    @property
    def cursor(self) -> int:
        return self.events[-1].seq if self.events else self.after

    def take(self, event: Event) -> None:
        """Check the sequence number and keep the event. A viewer of internal events sees every number of the
        thread.
        """
        if event.seq <= self.cursor or (self.debug and event.seq != self.cursor + 1):
            raise ContractBroken(f"seq {event.seq} after {self.cursor} in {self.thread_id}")
        self.events.append(event)

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
            last = [(event.seq, event.type) for event in self.events[-3:]]
            story = (
                f"{self.thread_id} at {self.cursor}, {self.connected} connections, {self.refused} refused, "
                f"last {last}"
            )
            raise AssertionError(f"the awaited event did not come within {within} s: {story}") from None
        raise AssertionError("a thread never ends")

    async def close(self) -> None:
        if self._items is not None:
            await self._items.aclose()  # type: ignore[attr-defined]

    async def _follow(self) -> AsyncIterator[Event]:
        turn = 0
        while True:
            base_url = self.base_urls[turn % len(self.base_urls)]
            turn += 1
            try:
                after = self.cursor or None
                async with Chat.open(
                    base_url,
                    self.thread_id,
                    self.token,
                    after=after,
                    debug=self.debug,
                    patience=TIMEOUT_SECONDS,
                ) as chat:
                    self.connected += 1
                    async for event in chat.events():
                        self.take(event)
                        yield event
            except ChatRefused as refusal:
                if refusal.status < 500:
                    raise
                self.refused += 1
            except (OSError, EOFError):
                self.refused += 1
            await asyncio.sleep(RECONNECT_SECONDS)
