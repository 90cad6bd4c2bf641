"""The listening socket and the uvicorn server on it.

Owns limits on headers and frames, timeouts of slow clients, and shutdown. A client that does not read its
stream or WebSocket is disconnected here, whatever is sent to it. Installs no signal handlers: the caller
stops the server.
"""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Generator
from typing import Any, cast

import structlog
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode
from websockets.http11 import Request

from easel.edges.errors import CONNECTION
from easel.errors import BadSettings
from easel.host.metrics import STALLED

MAX_HEADER_BYTES = 65_536
HEADER_TIMEOUT_SECONDS = 30.0  # for the head of a request, and for each further part of its body
# The close reasons of an oversized frame; the protocol allows 123 bytes.
TOO_LARGE = (
    "A frame must be at most {limit} bytes (EASEL_MAX_FRAME_BYTES); POST /api/rpc takes EASEL_MAX_BODY_BYTES."
)
SHUTDOWN_SECONDS = 4  # time for responses in progress; streams were ended before

log = structlog.get_logger("http")


def listen_on(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as problem:
        if problem.errno == errno.EADDRINUSE:
            raise BadSettings(
                problem=f"Port {port} is in use; choose another with --port, or --port 0 for any."
            ) from None
        raise BadSettings(problem=f"Cannot listen on {host}:{port}: {problem.strerror or problem}.") from None


class _Config(uvicorn.Config):
    stall_seconds = 20.0


class _StallLimit(asyncio.Protocol):
    """Aborts the connection if its write buffer stays full: the client does not read. RX-48

    A part of uvicorn's protocols, so that a send costs nothing. A close frame would wait in the buffer.
    """

    config: Any
    scope: Any
    transport: Any
    stall_seconds: float | None = None  # None: the client may take any time
    _stalling: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_timer()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        if self.stall_seconds is not None and self._stalling is None:
            loop = asyncio.get_running_loop()
            self._stalling = loop.call_later(self.stall_seconds, self._abort_stalled)

    def _stop_timer(self) -> None:
        if self._stalling is not None:
            self._stalling.cancel()
            self._stalling = None

    def _abort_stalled(self) -> None:
        STALLED.inc()
        log.info("stream.stalled", path=self.scope["path"])
        self.transport.abort()


class _BoundedHttp(_StallLimit, HttpToolsProtocol):
    """uvicorn's HTTP protocol with a limit on headers, a timeout for idle clients, and functions for streams.

    A timer closes the connection if the headers are not complete in time, or if no byte of the body arrives
    in that time. A body of which bytes keep arriving may take any time.
    """

    _head_bytes = 0
    _is_in_head = True
    _waiting_since: float | None = None  # None: no request is being received

    def connection_made(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, transport: asyncio.Transport
    ) -> None:
        super().connection_made(transport)
        self._waiting_since = self.loop.time()
        self._header_timer = self.loop.call_later(HEADER_TIMEOUT_SECONDS, self._check_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        self._header_timer.cancel()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self) -> None:
        self._header_timer.cancel()  # else the timer would keep this object
        super().handle_websocket_upgrade()

    def limit_stalls(self, seconds: float | None = None) -> None:
        """Disconnect the client if it does not read the response to its present request in time."""
        self.stall_seconds = seconds or self.config.stall_seconds
        if self.flow.write_paused:  # by an earlier response on this connection
            self._start_timer()

    def _check_timeout(self) -> None:
        if self.transport.is_closing():
            return
        waited = 0.0
        if self._waiting_since is not None and not self.flow.read_paused:
            waited = self.loop.time() - self._waiting_since
        if waited >= HEADER_TIMEOUT_SECONDS:
            self.transport.abort()
            return
        self._header_timer = self.loop.call_later(HEADER_TIMEOUT_SECONDS - waited, self._check_timeout)

    def data_received(self, data: bytes) -> None:
        if self._is_in_head:
            self._head_bytes += len(data)
            # All bytes before this chunk belong to the headers; this chunk may contain a part of the body.
            if self._head_bytes > MAX_HEADER_BYTES + len(data):
                self.send_400_response("Headers too large.")
                return
        elif self._waiting_since is not None:
            self._waiting_since = self.loop.time()
        super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._waiting_since = self.loop.time()
        self.scope["extensions"] = {
            CONNECTION: {"abort": self.transport.abort, "limit_stalls": self.limit_stalls}
        }

    def on_response_complete(self) -> None:
        self.stall_seconds = None
        super().on_response_complete()

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_in_head = True
        self._head_bytes = 0
        self._waiting_since = None
        super().on_message_complete()


class _OurWebSockets(_StallLimit, WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol with functions of the connection, and a reason for oversized frames."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.stall_seconds = self.config.stall_seconds
        fail = self.conn.fail
        self._too_large = TOO_LARGE.format(limit=self.config.ws_max_size)

        def fail_with_reason(code: int, reason: str = "") -> None:
            fail(code, self._too_large if code == CloseCode.MESSAGE_TOO_BIG else reason)

        self.conn.fail = fail_with_reason

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # uvicorn does not send the error response to a bad handshake.
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.close()

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if not self.close_sent:
            extensions = cast("dict[str, Any]", self.scope.get("extensions"))
            extensions[CONNECTION] = {
                "abort": self.transport.abort,
                "watch": self.watch,
                "limit_frames": self.limit_frames,
            }

    def limit_frames(self, max_bytes: int | None, reason: str = "") -> None:
        """Limit the size of the frames to come; None restores the limit of the server."""
        limit = self.config.ws_max_size
        self.conn.max_message_size = limit if max_bytes is None else min(max_bytes, limit)
        self._too_large = reason or TOO_LARGE.format(limit=limit)

    def watch(self, seconds: float) -> None:
        """Ping the client at this interval, and close the connection if a pong takes longer."""
        self.stop_keepalive()
        self.ping_interval = self.ping_timeout = seconds
        self.last_ping_rtt = 0.0
        self.start_keepalive()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()  # uvicorn would wait until the buffer is sent, and the client does not read

    async def send(self, message: Any) -> None:
        # If the connection is closing, uvicorn would ignore `accept` and report later messages as errors.
        if self.transport.is_closing():
            raise ClientDisconnected
        await super().send(message)


class _QuietServer(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield  # the caller handles signals


class HttpServer:
    def __init__(
        self,
        app: ASGIApp,
        listening: socket.socket,
        *,
        max_frame_bytes: int = 1_048_576,
        ping_seconds: float = 15.0,
        stall_seconds: float = 20.0,
    ) -> None:
        config = _Config(
            app,
            http=_BoundedHttp,
            ws=_OurWebSockets,
            ws_max_size=max_frame_bytes,
            ws_ping_interval=ping_seconds,
            ws_ping_timeout=ping_seconds,
            ws_per_message_deflate=False,  # a small compressed frame can expand to a large one
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        config.stall_seconds = stall_seconds
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
