"""Server-sent events of a subscription. RX-33, RX-35

Owns the frames and the backpressure towards one reader. Does not know which log the subscription reads.
"""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from easel.core.stream.log import LoggedEvent
from easel.edges.errors import CONNECTION
from easel.edges.http.calls import watch_disconnect
from easel.host.streams import Subscription

HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",
}
RETRY = b"retry: 1000\n\n"  # a browser reconnects after a second
MAX_UNSENT_BYTES = 262_144
DRAIN_POLL_SECONDS = 0.05
HEARTBEAT = b": still here\n\n"


def envelope_text(event: LoggedEvent) -> str:
    """Return the event as JSON text, the same on every transport."""
    at = event.at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return f'{{"seq":{event.seq},"type":"{event.type}","ts":"{at}","data":{event.data}}}'


def frame(event: LoggedEvent) -> bytes:
    if event.frame is None:
        event.frame = f"id: {event.seq}\nevent: {event.type}\ndata: {envelope_text(event)}\n\n".encode()
    return event.frame


class EventStream(Response):
    """Sends the events of a subscription until it ends or the reader disconnects."""

    def __init__(self, subscription: Subscription, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(headers={**HEADERS, **(headers or {})})
        del self.headers["content-length"]  # a stream has no known length
        self._subscription = subscription
        self._sent_cursor = subscription.cursor  # the reader's `Last-Event-ID`

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = scope["extensions"][CONNECTION]
        async with watch_disconnect(receive) as disconnect:
            disconnect.add_done_callback(lambda _: self._subscription.end())
            try:
                await self._send_events(send)
                # Wait until the reader has received all bytes, or was disconnected because it is too slow.
                with self._subscription.sending():
                    while connection["unsent"]() and not disconnect.done():  # noqa: ASYNC110
                        await asyncio.sleep(DRAIN_POLL_SECONDS)
            except asyncio.CancelledError:
                if not self._subscription.is_cut:
                    raise
                connection["abort"]()  # a plain close would keep the buffer until it is read
            finally:
                self._subscription.close()

    async def _send_events(self, send: Send) -> None:
        subscription = self._subscription
        await self._send(send, {"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await self._send(send, _body(RETRY))
        while (events := await subscription.next()) is not None:
            for chunk in _chunks(events) if events else [self._with_cursor(HEARTBEAT)]:
                await self._send(send, _body(chunk))
            if events:
                self._sent_cursor = events[-1].seq
        last = b"" if subscription.has_seen_all else self._with_cursor(RETRY)
        await self._send(send, _body(last, more=False))

    async def _send(self, send: Send, message: Message) -> None:
        """Send, and measure how long it takes, so that a stalled reader can be cut."""
        # Without the context manager `sending`, which is for sends that overlap and takes longer.
        self._subscription.sending_since = asyncio.get_running_loop().time()
        await send(message)
        self._subscription.sending_since = None

    def _with_cursor(self, block: bytes) -> bytes:
        """Return a block without data, with the cursor if the reader has passed events that the filter hides.

        A reader that resumes does not read them again. Without data the block makes no event.
        """
        cursor = self._subscription.cursor
        if cursor == self._sent_cursor:
            return block
        self._sent_cursor = cursor
        return b"id: %d\n%s" % (cursor, block)


def _chunks(events: list[LoggedEvent]) -> Iterator[bytes]:
    """Yield chunks of at most MAX_UNSENT_BYTES, or of one longer event."""
    frames, size = list[bytes](), 0
    for event in events:
        encoded = frame(event)
        if frames and size + len(encoded) > MAX_UNSENT_BYTES:
            yield b"".join(frames)
            frames, size = [], 0
        frames.append(encoded)
        size += len(encoded)
    yield b"".join(frames)


def _body(data: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}
