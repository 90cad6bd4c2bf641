"""The deliveries of canvas events to one connection: each forwards the events of a canvas log.

A client subscribes to a canvas, or opens a view of it; either way each event arrives once. Owns a task per
canvas, and the reason that the client gets when a delivery ends. Does not know the socket.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

from msgspec import Meta

from easel.core.principal import Principal
from easel.core.stream.filter import CANVAS
from easel.core.stream.log import LAST_CURSOR
from easel.edges.decoding import with_warnings
from easel.edges.gateway import frames
from easel.edges.gateway.hello import ENDED
from easel.edges.params import OfCanvas
from easel.errors import HostError, InternalError, NotFound, TooMany
from easel.host.services import Services
from easel.host.streams import Subscription

DELETED = "DELETED"  # the reason for the end of a delivery


class Subscribe(OfCanvas):
    afterSeq: Annotated[int, Meta(ge=0, le=LAST_CURSOR)] | None = None  # noqa: N815 - a word of the protocol


@dataclass(eq=False, slots=True)
class Delivery:
    """The delivery of one canvas's events."""

    canvas_id: str
    after: int | None  # the seq after which it starts; None: with the oldest event
    is_subscribed: bool  # by `canvas.subscribe`; otherwise it ends with its last view
    opened: "asyncio.Future[None]"  # done when the client has the response, after which events are sent
    views: set[str] = field(default_factory=set[str])
    sent: int = 0  # the seq of the last event that was sent
    already_sent: range = range(0)  # by the delivery that this one replaces
    log: Subscription | None = None
    task: "asyncio.Task[None] | None" = None


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
        self._deliveries: dict[str, Delivery] = {}  # by canvas id
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return list(self._tasks)

    # -- subscriptions ---------------------------------------------------------------------------------------

    async def add(
        self, principal: Principal, request_id: str, params: Subscribe, warnings: list[str]
    ) -> None:
        """Open a subscription and respond to the request. The subscription's task outlives the request.

        A second subscription of the same canvas is answered like the first. RS-67
        """
        canvas_id = params.canvasId
        if params.agentId is not None:
            await self._services.canvases.require_agent(principal, canvas_id, params.agentId)
        while (current := self._deliveries.get(canvas_id)) is not None and current.is_subscribed:
            if await _is_opened(current):
                await self._respond(request_id, canvas_id, warnings)
                return
        if current is None and len(self._deliveries) >= self._max_count:
            raise TooMany(what="subscriptions of one connection", limit=self._max_count)
        delivery = self._new(canvas_id, params.afterSeq, is_subscribed=True)
        delivery.views = set() if current is None else current.views
        # The task sends the response itself, so that no event precedes the response.
        respond = partial(self._respond, request_id, canvas_id, warnings)
        self._start(delivery, self._follow(principal, respond, delivery, current))
        await asyncio.shield(delivery.opened)

    async def remove(self, principal: Principal, params: OfCanvas) -> dict[str, Any]:
        """End the delivery of a canvas's events and return the payload of the response."""
        if params.agentId is not None:
            await self._services.canvases.require_agent(principal, params.canvasId, params.agentId)
        delivery = self._deliveries.get(params.canvasId)
        while delivery is not None and delivery.is_subscribed and not await _is_opened(delivery):
            delivery = self._deliveries.get(params.canvasId)  # of a view, or of another request
        if delivery is None:
            raise NotFound(what="subscription to", id=params.canvasId[:200])
        await self._cancel(delivery)
        return {"canvasId": params.canvasId, "subscribed": False}

    # -- views -----------------------------------------------------------------------------------------------

    def add_view(
        self, principal: Principal, canvas_id: str, view_id: str, last_seq: int
    ) -> Callable[[], Awaitable[None]] | None:
        """Prepare the delivery of the events after `last_seq` to a view. RS-67

        Returns a function that starts it, to be called after the response is sent; None if the connection
        has no room for another delivery.
        """
        delivery = self._deliveries.get(canvas_id)
        if delivery is None:
            if len(self._deliveries) >= self._max_count:
                return None
            delivery = self._new(canvas_id, last_seq, is_subscribed=False)
            self._start(delivery, self._follow_view(principal, delivery))
        delivery.views.add(view_id)
        return partial(self._start_view, principal, delivery, view_id, last_seq)

    async def _start_view(
        self, principal: Principal, delivery: Delivery, view_id: str, last_seq: int
    ) -> None:
        """Start a delivery to a view, or wait for the subscription that delivers to the view.

        If that subscription is refused, the view gets a delivery of its own.
        """
        if not delivery.is_subscribed:
            if not delivery.opened.done():
                delivery.opened.set_result(None)
            return
        if await _is_opened(delivery) or view_id not in delivery.views:
            return
        start = self.add_view(principal, delivery.canvas_id, view_id, last_seq)
        if start is not None:
            await start()

    async def remove_views(self, canvas_id: str, view_ids: list[str]) -> None:
        """End the delivery of closed views, unless the client has other views or is subscribed."""
        delivery = self._deliveries.get(canvas_id)
        if delivery is None or not view_ids:
            return
        delivery.views.difference_update(view_ids)
        if not delivery.views and not delivery.is_subscribed:
            await self._cancel(delivery)

    # -- deliveries ------------------------------------------------------------------------------------------

    def _new(self, canvas_id: str, after: int | None, *, is_subscribed: bool) -> Delivery:
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        delivery = Delivery(canvas_id, after, is_subscribed, opened, sent=after or 0)
        self._deliveries[canvas_id] = delivery
        return delivery

    def _start(self, delivery: Delivery, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)
        delivery.task = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self._forget(delivery))

    def _forget(self, delivery: Delivery) -> None:
        if self._deliveries.get(delivery.canvas_id) is delivery:
            del self._deliveries[delivery.canvas_id]
        if not delivery.opened.done():
            delivery.opened.cancel()

    async def _cancel(self, delivery: Delivery) -> None:
        self._forget(delivery)
        if delivery.task is not None:
            delivery.task.cancel()
            await asyncio.gather(delivery.task, return_exceptions=True)

    async def _follow(
        self,
        principal: Principal,
        respond: Callable[[], Awaitable[None]],
        delivery: Delivery,
        replaced: Delivery | None,
    ) -> None:
        """Deliver a subscription, in place of the delivery to views if there is one."""
        try:
            delivery.log = await self._open(principal, delivery)
            if replaced is not None:
                await self._take_over(delivery, replaced)
        except BaseException as problem:
            if delivery.log is not None:
                delivery.log.close()
            self._forget_refused(delivery, replaced)
            if not isinstance(problem, Exception):
                raise
            delivery.opened.set_exception(problem)
            delivery.opened.exception()  # a caller that has disconnected does not read it
            return
        await self._deliver(principal, delivery, respond)

    async def _follow_view(self, principal: Principal, delivery: Delivery) -> None:
        async def wait_for_response() -> None:
            await asyncio.shield(delivery.opened)
            delivery.log = await self._open(principal, delivery)

        await self._deliver(principal, delivery, wait_for_response)

    async def _open(self, principal: Principal, delivery: Delivery) -> Subscription:
        log = await self._services.canvas_tails.open(principal, delivery.canvas_id, delivery.after, CANVAS)
        assert log is not None  # the log of a canvas has no end
        return log

    async def _take_over(self, delivery: Delivery, replaced: Delivery) -> None:
        """End the delivery to views after the event that it is sending, and skip what it has sent."""
        if replaced.log is None:
            await self._cancel(replaced)
            return
        replaced.log.end()
        if replaced.task is not None:
            await asyncio.gather(replaced.task, return_exceptions=True)
        delivery.already_sent = range((replaced.after or 0) + 1, replaced.sent + 1)

    def _forget_refused(self, delivery: Delivery, replaced: Delivery | None) -> None:
        """Keep the delivery to open views if the subscription that would have replaced it is refused."""
        if self._deliveries.get(delivery.canvas_id) is delivery:
            del self._deliveries[delivery.canvas_id]
        if replaced is None or replaced.task is None or replaced.task.done():
            return
        if replaced.views:
            self._deliveries.setdefault(delivery.canvas_id, replaced)
        else:
            replaced.task.cancel()

    async def _deliver(
        self, principal: Principal, delivery: Delivery, begin: Callable[[], Awaitable[None]]
    ) -> None:
        canvas_id = delivery.canvas_id
        try:
            await begin()
            if not delivery.opened.done():
                delivery.opened.set_result(None)
            await self._forward_events(delivery)
            reason = await self._end_reason(principal, canvas_id)
        except NotFound:  # deleted before its log was opened
            reason = DELETED
        except HostError as problem:  # such as an unavailable store: the client resumes with its last seq
            reason = problem.code
        except Exception as problem:  # noqa: BLE001 - logged by `report_error`
            reason = self._report_error("canvas.subscribe", problem).code
        finally:
            if delivery.log is not None:
                delivery.log.close()
        if self._deliveries.get(canvas_id) is not delivery:
            return  # a subscription has taken over
        # Remove the delivery before the notice is sent: the client may then subscribe again at once.
        self._forget(delivery)
        await self._send(frames.notice(ENDED, {"canvasId": canvas_id, "reason": reason}))

    async def _forward_events(self, delivery: Delivery) -> None:
        assert delivery.log is not None
        while (events := await delivery.log.next()) is not None:
            for event in events:
                if event.seq not in delivery.already_sent:
                    await self._send(frames.event(event))
                delivery.sent = event.seq

    async def _respond(self, request_id: str, canvas_id: str, warnings: list[str]) -> None:
        payload = with_warnings({"canvasId": canvas_id, "subscribed": True}, warnings)
        await self._send(frames.response(request_id, payload))

    async def _end_reason(self, principal: Principal, canvas_id: str) -> str:
        try:
            await self._services.canvases.get(principal, canvas_id)
        except NotFound:
            return DELETED
        return "RESUME"


async def _is_opened(delivery: Delivery) -> bool:
    """Wait until a subscription was answered. Returns whether it was accepted."""
    await asyncio.wait([delivery.opened])
    return not delivery.opened.cancelled() and delivery.opened.exception() is None
