"""Listening: one socket, one server, stopped from outside and never by a signal of its own."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Generator
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from easel.edges.replies import CONNECTION
from easel.errors import BadSettings

MOST_HEADER_BYTES = 65_536
LAST_WORDS_SECONDS = 4  # an answer under way may finish; streams have ended by themselves by then


def listen_on(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as problem:
        if problem.errno == errno.EADDRINUSE:
            raise BadSettings(problem=f"Port {port} is taken by another program; choose one with --port, or --port 0 for any.") from None
        raise BadSettings(problem=f"Cannot listen on {host}:{port}: {problem.strerror or problem}.") from None


class _BoundedHttp(HttpToolsProtocol):
    """HTTP as uvicorn reads it, with an end to headers, and a way to give up a connection at once."""

    _head_bytes = 0
    _is_in_head = True

    def data_received(self, data: bytes) -> None:
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEADER_BYTES + len(data):  # what came before this piece was all head already
                self.send_400_response("Headers too large.")
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {CONNECTION: {"abort": self.transport.abort, "unsent": self.transport.get_write_buffer_size}}

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_in_head = True
        self._head_bytes = 0
        super().on_message_complete()


class _OurWebSockets(WebSocketsSansIOProtocol):
    """WebSockets as uvicorn speaks them, with the same way to give up a connection at once."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:  # uvicorn keeps this refusal and waits for ever
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.close()

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if not self.close_sent:
            extensions = cast("dict[str, Any]", self.scope.get("extensions"))
            extensions[CONNECTION] = {"abort": self.transport.abort, "unsent": self.transport.get_write_buffer_size}

    async def send(self, message: Any) -> None:
        if self.transport.is_closing():  # uvicorn would pass over an `accept`, or take what we say after it closed for our mistake
            raise ClientDisconnected
        await super().send(message)


class _QuietServer(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield  # whoever started us decides when to stop


class HttpServer:
    def __init__(self, app: ASGIApp, listening: socket.socket, *, max_frame_bytes: int = 1_048_576, ping_seconds: float = 15.0) -> None:
        config = uvicorn.Config(
            app,
            http=_BoundedHttp,
            ws=_OurWebSockets,
            ws_max_size=max_frame_bytes,
            ws_ping_interval=ping_seconds,
            ws_ping_timeout=ping_seconds,
            ws_per_message_deflate=False,  # a compressed frame can be far larger than it looks
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=LAST_WORDS_SECONDS,
        )
        self._listening = listening
        self._server = _QuietServer(config)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._server.serve([self._listening]), name="http")
        while not self._server.started:
            if self._task.done():
                await self._task
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        self._server.should_exit = True
        if self._task is not None:
            await self._task

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listening.getsockname()[:2]
        return host, port
