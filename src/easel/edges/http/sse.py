"""A tail as server-sent events. RX-33, RX-35"""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from easel.core.stream.log import LoggedEvent
from easel.edges.errors import CONNECTION
from easel.host.streams import Subscription

HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",
}
RETRY = b"retry: 1000\n\n"  # a browser comes back after a second
MAX_UNSENT_BYTES = 262_144
LAST_LOOK_SECONDS = 0.05
SIGN_OF_LIFE = b": still here\n\n"


def envelope_text(event: LoggedEvent) -> str:
    """The event as every transport sends it."""
    at = event.at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return f'{{"seq":{event.seq},"type":"{event.type}","ts":"{at}","data":{event.data}}}'


def frame(event: LoggedEvent) -> bytes:
    if event.frame is None:
        event.frame = f"id: {event.seq}\nevent: {event.type}\ndata: {envelope_text(event)}\n\n".encode()
    return event.frame


class EventStream(Response):
    """Sends what the subscription gives, until it ends or the reader is gone."""

    def __init__(self, subscription: Subscription, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(headers={**HEADERS, **(headers or {})})
        del self.headers["content-length"]  # its end is when it ends
        self._subscription = subscription

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        viewer = self._subscription
        gone = asyncio.create_task(_end_when_gone(receive, viewer))
        connection = scope["extensions"][CONNECTION]
        now = asyncio.get_running_loop().time
        try:
            viewer.sending_since = now()
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await send(_body(RETRY))
            viewer.sending_since = None
            while (events := await viewer.next()) is not None:
                for helping in _helpings(events):
                    viewer.sending_since = now()
                    await send(_body(helping))
                    viewer.sending_since = None
            viewer.sending_since = now()
            await send(_body(b"" if viewer.has_seen_all else RETRY, more=False))
            while connection["unsent"]() and not gone.done():  # noqa: ASYNC110 - until its reader has taken the rest, or is cut
                await asyncio.sleep(LAST_LOOK_SECONDS)
        except asyncio.CancelledError:
            if not viewer.is_cut:
                raise
            connection["abort"]()  # a plain close would keep what is buffered until the reader takes it
        finally:
            viewer.close()
            gone.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await gone


def _helpings(events: list[LoggedEvent]) -> Iterator[bytes]:
    """Events in as few pieces as fit what one reader may have in the air; no event at all is a sign of life."""
    if not events:
        yield SIGN_OF_LIFE
        return
    helping, size = list[bytes](), 0
    for event in events:
        bytes_ = frame(event)
        if helping and size + len(bytes_) > MAX_UNSENT_BYTES:
            yield b"".join(helping)
            helping, size = [], 0
        helping.append(bytes_)
        size += len(bytes_)
    yield b"".join(helping)


def _body(data: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


async def _end_when_gone(receive: Receive, viewer: Subscription) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    viewer.end()
