"""Server-sent events of a subscription. RX-33, RX-35

Owns the frames and the size of chunks. Does not know which log the subscription reads.
"""

from collections.abc import Iterator, Mapping
from functools import partial

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from easel.core.stream.log import LoggedEvent
from easel.edges.delivery import deliver
from easel.edges.errors import CONNECTION
from easel.edges.http.calls import body_part, watch_disconnect
from easel.host.streams import Subscription

HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",
}
RETRY = b"retry: 1000\n\n"  # a browser reconnects after a second
MAX_UNSENT_BYTES = 262_144
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
        scope["extensions"][CONNECTION]["limit_stalls"]()
        async with watch_disconnect(receive) as disconnect:
            disconnect.add_done_callback(lambda _: self._subscription.end())
            try:
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                await send(body_part(RETRY))
                await deliver(self._subscription, partial(self._send_page, send))
                last = b"" if self._subscription.has_seen_all else self._with_cursor(RETRY)
                await send(body_part(last, more=False))
            finally:
                self._subscription.close()

    async def _send_page(self, send: Send, events: list[LoggedEvent]) -> None:
        for chunk in _chunks(events) if events else [self._with_cursor(HEARTBEAT)]:
            await send(body_part(chunk))
        if events:
            self._sent_cursor = events[-1].seq

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
