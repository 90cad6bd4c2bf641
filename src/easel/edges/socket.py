"""One WebSocket, whatever is spoken on it: the order of what is sent, its tasks and its end.

Owns the limits before sign-in and on requests, the watch of the credential, the close reasons, and the tasks
of the connection, which end with it. Frames for the client are not queued: sending waits until the client has
read earlier ones. One that does not read is disconnected by the server below. Does not know what frames say.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Self

from starlette.websockets import WebSocket, WebSocketDisconnect

from easel.core.principal import Principal
from easel.edges.errors import CONNECTION
from easel.errors import BadInput, TooMany
from easel.host.auth.revocation import Revocation

# Close codes, and the reasons that are not of one protocol.
DONE, REFUSED, RESTARTING = 1000, 1008, 1012  # 1012 asks the client to reconnect
REPLACED = "Replaced by a newer connection"
SIGNED_OUT = "Signed out."
ROLE_CHANGED = "Your role has changed."  # with RESTARTING: the client reconnects with other rights
NOT_SIGNED_IN = "Not signed in."
CLOSE_SECONDS = 1.0  # time in which the close frame must be sent
MAX_REQUESTS = 256  # at once; clients of GSV send as many
# Before the sign-in, if the upgrade request had no valid token: enough for a node that offers many tools.
MAX_ANONYMOUS_FRAMES = 3
MAX_ANONYMOUS_BYTES = 65_536
# The close reason; the protocol allows 123 bytes.
TOO_MUCH = (
    f"Before sign-in: {MAX_ANONYMOUS_FRAMES} frames, {MAX_ANONYMOUS_BYTES} bytes; "
    "more with Authorization: Bearer in the upgrade request."
)


@dataclass(eq=False, slots=True)
class Socket:
    """A WebSocket as a context: accepted at its start; its tasks are cancelled at its end."""

    socket: WebSocket
    revocation: Revocation
    is_anonymous: bool = False  # until `admit`
    _sending: asyncio.Lock = field(default_factory=asyncio.Lock)
    _is_closed: bool = False
    _problem: BaseException | None = None  # of a task
    _tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _requests: set[str | int] = field(
        default_factory=set[str | int]
    )  # ids of those that are not answered yet
    # End the limits before sign-in, or the watch after it.
    _undo: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])

    async def __aenter__(self) -> Self:
        if self.is_anonymous:
            self._connection["limit_frames"](MAX_ANONYMOUS_BYTES, TOO_MUCH)
        await self.socket.accept()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_closed = True
        self._run_undo()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def receive(self, handle: Callable[[str | None], Awaitable[None]]) -> None:
        """Pass each frame to `handle`, None for a binary one, until the connection ends.

        Raises the exception of a task that failed.
        """
        frame_count, byte_count = 0, 0
        while (message := await self.socket.receive())["type"] == "websocket.receive":
            text = message.get("text")
            if self.is_anonymous:
                frame_count, byte_count = frame_count + 1, byte_count + len((text or "").encode())
                if frame_count > MAX_ANONYMOUS_FRAMES or byte_count > MAX_ANONYMOUS_BYTES:
                    await self.close(REFUSED, TOO_MUCH)
            if not self._is_closed:
                await handle(text)
        if self._problem is not None:
            raise self._problem

    def expect_handshake(self, seconds: float, reason: str) -> None:
        """Close the connection with this reason unless `admit` is called in time."""
        timer = asyncio.get_running_loop().call_later(seconds, self.close_soon, REFUSED, reason)
        self._undo.append(timer.cancel)

    def admit(self, principal: Principal) -> None:
        """End the limits before sign-in, and close the connection when the credential ends or changes."""
        self._run_undo()
        if self.is_anonymous:
            self.is_anonymous = False
            self._connection["limit_frames"](None)
        self._undo.append(self.revocation.watch(principal, lambda: self._end_soon(principal)))

    def _end_soon(self, principal: Principal) -> None:
        self.start(self._end(principal))

    async def _end(self, principal: Principal) -> None:
        if await self.revocation.is_valid(principal):
            await self.close(RESTARTING, ROLE_CHANGED)
        else:
            await self.close(REFUSED, SIGNED_OUT)

    def ping(self, seconds: float) -> None:
        """Ping the client at this interval, and disconnect it if a pong takes longer."""
        self._connection["watch"](seconds)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task that ends with the connection; if it fails, the connection ends with it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    def start_request(self, id_: str | int, answer: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Answer a request in a task of its own. Raises `BadInput` for an id in use, and `TooMany`."""
        if id_ in self._requests:
            raise BadInput(problem=f"id must be unique: request {id_!r} is still running.")
        if len(self._requests) >= MAX_REQUESTS:
            raise TooMany(what="requests of one connection", limit=MAX_REQUESTS)
        self._requests.add(id_)
        self.start(answer()).add_done_callback(lambda _: self._requests.remove(id_))

    async def send(self, text: str) -> None:
        """Send a frame after the earlier ones; nothing, once the connection is closed."""
        async with self._sending:
            if not self._is_closed:
                try:
                    await self.socket.send({"type": "websocket.send", "text": text})
                except WebSocketDisconnect:
                    self._is_closed = True

    async def close(self, code: int, reason: str = "") -> None:
        """Send a close frame, or abort if the client does not read it in time. Nothing is sent afterwards."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS), self._sending:
                if not self._is_closed:
                    await self.socket.close(code, reason)
        except TimeoutError:
            self._connection["abort"]()
        except WebSocketDisconnect:
            pass
        self._is_closed = True

    def close_soon(self, code: int, reason: str) -> None:
        self.start(self.close(code, reason))

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            self._problem = problem
            self._connection["abort"]()

    def _run_undo(self) -> None:
        while self._undo:
            self._undo.pop()()

    @property
    def _connection(self) -> dict[str, Any]:
        return self.socket.scope["extensions"][CONNECTION]
