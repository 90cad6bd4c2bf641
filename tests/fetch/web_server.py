"""A real HTTP server on loopback whose answers a test writes byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable

Answer = "Callable[[str, asyncio.StreamWriter], Awaitable[None]]"


class WebServer:
    """Keeps the requests as text, head and body; `pages` has the raw answer of each path."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.pages: dict[str, bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]] = {}
        self.port = 0

    def answer(self, path: str, body: bytes = b"ok", status: str = "200 OK", **headers: str) -> None:
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        head = "\r\n".join([f"HTTP/1.1 {status}", *lines, f"content-length: {len(body)}", "", ""])
        self.pages[path] = head.encode() + body

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next(
                (int(line[15:]) for line in head.split("\r\n") if line.lower().startswith("content-length:")),
                0,
            )
            self.requests.append(head + (await reader.readexactly(length)).decode())
            page = self.pages[head.split(" ")[1]]
            if isinstance(page, bytes):
                writer.write(page)
                await writer.drain()
            else:
                await page(writer)
        writer.close()


@contextlib.asynccontextmanager
async def run_web_server(tls: ssl.SSLContext | None = None) -> AsyncIterator[WebServer]:
    served = WebServer()
    server = await asyncio.start_server(served._handle, "127.0.0.1", 0, ssl=tls)
    served.port = server.sockets[0].getsockname()[1]
    async with server:
        yield served
        server.close()
