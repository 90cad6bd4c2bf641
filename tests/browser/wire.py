"""A recording proxy between a browser and Easel.

The connections of the home page belong to a shared worker, which a test cannot inspect; the network it can.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

_REQUEST = re.compile(rb"^[A-Z]+ (\S+) HTTP/1\.1\r\n", re.MULTILINE)
_ID = re.compile(rb"\nid: ([0-9]+)\r?\n")
_EVENT = re.compile(rb'\{"seq":\d+,"type":"')


class Answer:
    """The target of a request and all bytes of its response; for a WebSocket, all of its frames."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.bytes = bytearray()
        self.is_open = True

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the event envelopes in the response. Frames to a client are not masked."""
        for found in _EVENT.finditer(self.bytes):
            text = bytes(self.bytes[found.start() :]).decode("utf-8", "replace")
            with contextlib.suppress(json.JSONDecodeError):  # the last event may be incomplete
                yield json.JSONDecoder().raw_decode(text)[0]

    def positions(self) -> set[int]:
        """Return the positions that a reader may resume from: of events, and of heartbeats in between."""
        ids = {int(found[1]) for found in _ID.finditer(self.bytes)}
        return ids | {event["seq"] for event in self.events()}


class Wire:
    def __init__(self, base_url: str) -> None:
        parts = urlsplit(base_url)
        self._target = (parts.hostname, parts.port)
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_down = False
        self._passes_responses = asyncio.Event()  # whether responses are passed on
        self._passes_responses.set()
        self.base_url = ""
        self.answers: list[Answer] = []

    async def __aenter__(self) -> Wire:
        self._server = await asyncio.start_server(self._proxy, "127.0.0.1", 0)
        self.base_url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def take_down(self) -> None:
        """Abort every connection, also new ones until `bring_back`."""
        self._is_down = True
        self.cut()

    def bring_back(self) -> None:
        self._is_down = False
        self._passes_responses.set()

    def hold_back(self) -> None:
        """Hold back responses; requests still reach the server."""
        self._passes_responses.clear()

    def cut(self) -> None:
        """Abort every connection, as a restarted router does."""
        for writer in self._writers:
            writer.transport.abort()

    def to(self, path: str) -> list[Answer]:
        """Return the responses to requests whose target starts with the path."""
        return [answer for answer in self.answers if answer.target.startswith(path)]

    async def _proxy(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())  # type: ignore[arg-type]
        try:
            from_server, to_server = await asyncio.open_connection(*self._target)
        except (OSError, asyncio.CancelledError):  # the server is down, or the test is over
            to_client.transport.abort()
            return
        if self._is_down:
            to_server.close()
            to_client.transport.abort()
            return
        current: list[Answer] = []
        self._writers.add(to_client)

        async def send_requests() -> None:
            while chunk := await from_client.read(65536):
                if found := _REQUEST.match(chunk):  # a browser sends a request header in one chunk
                    for answer in current:
                        answer.is_open = False
                    current[:] = [Answer(found[1].decode())]
                    self.answers += current
                to_server.write(chunk)

        async def return_responses() -> None:
            while chunk := await from_server.read(65536):
                await self._passes_responses.wait()
                for answer in current:
                    answer.bytes += chunk
                to_client.write(chunk)

        both = [asyncio.create_task(send_requests()), asyncio.create_task(return_responses())]
        try:
            with contextlib.suppress(asyncio.CancelledError):  # at the end of the test
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._writers.discard(to_client)
            for answer in current:
                answer.is_open = False
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            to_server.close()
            to_client.close()
