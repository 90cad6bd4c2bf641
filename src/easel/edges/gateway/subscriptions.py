"""The canvas subscriptions of one connection: each forwards the events of a canvas log.

Owns a task per subscription, and the reason that the client gets when a subscription ends. Does not know the
socket.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from msgspec import Meta

from easel.core.principal import Principal
from easel.core.stream.filter import CANVAS
from easel.core.stream.log import LAST_CURSOR
from easel.edges.decoding import Decoded, Params, with_warnings
from easel.edges.gateway import frames
from easel.edges.gateway.hello import ENDED
from easel.errors import BadInput, HostError, InternalError, NotFound, TooMany
from easel.host.services import Services
from easel.host.streams import Subscription

SUBSCRIBE, UNSUBSCRIBE = "canvas.subscribe", "canvas.unsubscribe"


class Subscribe(Params):
    canvasId: str  # noqa: N815 - a word of the protocol
    afterSeq: Annotated[int, Meta(ge=0, le=LAST_CURSOR)] | None = None  # noqa: N815


class Unsubscribe(Params):
    canvasId: str  # noqa: N815


class Subscriptions:
    def __init__(
        self,
        services: Services,
        send: Callable[[str], Awaitable[None]],
        report_error: Callable[[str, Exception], InternalError],
        max_count: int,
    ) -> None:
        self._services = services
        self._send = send
        self._report_error = report_error
        self._max_count = max_count
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by canvas id

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return list(self._tasks.values())

    async def add(self, principal: Principal, request_id: str, decoded: Decoded) -> None:
        """Open a subscription and respond to the request. The subscription's task outlives the request."""
        canvas_id = decoded.params.canvasId
        if canvas_id in self._tasks:
            raise BadInput(problem=f"This connection is already subscribed to {canvas_id}.")
        if len(self._tasks) >= self._max_count:
            raise TooMany(what="subscriptions of one connection", limit=self._max_count)
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # The task sends the response itself, so that no event precedes the response.
        task = asyncio.create_task(self._follow(principal, request_id, decoded, opened))
        self._tasks[canvas_id] = task
        task.add_done_callback(lambda done: self._remove(canvas_id, done))
        await opened

    async def remove(self, params: Unsubscribe) -> dict[str, Any]:
        """End a subscription and return the payload of the response."""
        task = self._tasks.pop(params.canvasId, None)
        if task is None:
            raise NotFound(what="subscription to", id=params.canvasId[:200])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return {"canvasId": params.canvasId, "subscribed": False}

    def _remove(self, canvas_id: str, task: asyncio.Task[None] | None) -> None:
        if task is not None and self._tasks.get(canvas_id) is task:
            del self._tasks[canvas_id]

    async def _follow(
        self, principal: Principal, request_id: str, decoded: Decoded, opened: asyncio.Future[None]
    ) -> None:
        params: Subscribe = decoded.params
        canvas_id = params.canvasId
        try:
            log = await self._services.canvas_tails.open(principal, canvas_id, params.afterSeq, CANVAS)
        except BaseException as problem:
            self._tasks.pop(canvas_id, None)
            if not opened.done():
                opened.set_exception(problem) if isinstance(problem, Exception) else opened.cancel()
            if not isinstance(problem, Exception):
                raise
            return
        assert log is not None  # the log of a canvas has no end
        try:
            payload = {"canvasId": canvas_id, "subscribed": True}
            await self._send(frames.response(request_id, with_warnings(payload, decoded.warnings)))
            opened.set_result(None)
            await self._forward_events(log)
            reason = await self._end_reason(principal, canvas_id)
        except HostError as problem:  # such as an unavailable store: the client resumes with its last seq
            reason = problem.code
        except Exception as problem:  # noqa: BLE001 - logged by `report_error`
            reason = self._report_error(SUBSCRIBE, problem).code
        finally:
            log.close()
            if not opened.done():
                opened.cancel()
        # Remove the subscription before the notice is sent: the client may then subscribe again at once.
        self._remove(canvas_id, asyncio.current_task())
        await self._send(frames.notice(ENDED, {"canvasId": canvas_id, "reason": reason}))

    async def _forward_events(self, log: Subscription) -> None:
        while (events := await log.next()) is not None:
            for event in events:
                await self._send(frames.event(event))

    async def _end_reason(self, principal: Principal, canvas_id: str) -> str:
        try:
            await self._services.canvases.get(principal, canvas_id)
        except NotFound:
            return "DELETED"
        return "RESUME"
