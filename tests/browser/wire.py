"""What really went over the wire between a browser and Easel: a proxy that passes everything on and keeps a copy.

The console's connections belong to a worker that all tabs share, which no test can look into; the network can be.
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

_ASKED = re.compile(rb"^[A-Z]+ (\S+) HTTP/1\.1\r\n", re.MULTILINE)
_EVENT = re.compile(rb'\{"seq":\d+,"type":"')


class Answer:
    """One request's address and everything that came back on it; for a WebSocket, all of its frames."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.bytes = bytearray()
        self.is_open = True

    def events(self) -> Iterator[dict[str, Any]]:
        """The envelopes in it, in order, whatever carries them. Frames to a client are not masked."""
        for found in _EVENT.finditer(self.bytes):
            text = bytes(self.bytes[found.start() :]).decode("utf-8", "replace")
            with contextlib.suppress(json.JSONDecodeError):  # the last one may still be on its way
                yield json.JSONDecoder().raw_decode(text)[0]


class Wire:
    def __init__(self, base_url: str) -> None:
        parts = urlsplit(base_url)
        self._target = (parts.hostname, parts.port)
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_down = False
        self._lets_back = asyncio.Event()  # whether what the server says gets through
        self._lets_back.set()
        self.base_url = ""
        self.answers: list[Answer] = []

    async def __aenter__(self) -> Wire:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.base_url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def take_down(self) -> None:
        """Every present connection, and every new one until it is brought back."""
        self._is_down = True
        self.cut()

    def bring_back(self) -> None:
        self._is_down = False
        self._lets_back.set()

    def hold_back(self) -> None:
        """From now on the server hears, and is not heard."""
        self._lets_back.clear()

    def cut(self) -> None:
        """Every present connection, as a router does that was restarted."""
        for writer in self._writers:
            writer.transport.abort()

    def to(self, path: str) -> list[Answer]:
        return [one for one in self.answers if one.target.startswith(path)]

    async def _carry(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())  # type: ignore[arg-type]
        try:
            from_server, to_server = await asyncio.open_connection(*self._target)
        except (OSError, asyncio.CancelledError):  # nobody is there; or the test is over
            to_client.transport.abort()
            return
        if self._is_down:
            to_server.close()
            to_client.transport.abort()
            return
        present: list[Answer] = []
        self._writers.add(to_client)

        async def forth() -> None:
            while chunk := await from_client.read(65536):
                if found := _ASKED.match(chunk):  # a browser writes a request's head in one go
                    for one in present:
                        one.is_open = False
                    present[:] = [Answer(found[1].decode())]
                    self.answers += present
                to_server.write(chunk)

        async def back() -> None:
            while chunk := await from_server.read(65536):
                await self._lets_back.wait()
                for one in present:
                    one.bytes += chunk
                to_client.write(chunk)

        both = [asyncio.create_task(forth()), asyncio.create_task(back())]
        try:
            with contextlib.suppress(
                asyncio.CancelledError
            ):  # the test is over; asyncio would report it as an accident
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._writers.discard(to_client)
            for one in present:
                one.is_open = False
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            to_server.close()
            to_client.close()
