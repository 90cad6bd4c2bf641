"""The deliveries of canvas events to one connection: each forwards the events of a canvas log.

A client subscribes to a canvas, or opens a view of it; either way each event arrives once. Owns a task per
canvas, and the reason that the client gets when a delivery ends. Does not know the socket.
"""

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from easel.core.principal import Principal
from easel.core.stream.filter import CANVAS
from easel.edges.decoding import with_warnings
from easel.edges.gateway import frames
from easel.edges.params import OfCanvas, Subscribe
from easel.edges.results import CanvasSubscription
from easel.errors import HostError, InternalError, NotFound, TooMany
from easel.host.services import Services
from easel.host.streams import Subscription

DELETED = "DELETED"  # the reason for the end of a delivery


@dataclass(eq=False, slots=True)
class Delivery:
    """The delivery of one canvas's events."""

    canvas_id: str
    after: int | None  # the seq after which it starts; None: with the oldest event
    is_subscribed: bool = False  # by `canvas.subscribe`; otherwise it ends with its last view
    views: set[str] = field(default_factory=set[str])
    sent: int = 0  # the seq of the last event that was sent
    already_sent: range = range(0)  # by the delivery that this one replaces
    log: Subscription | None = None
    task: "asyncio.Task[None] | None" = None  # None: the client has no response yet


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
        # By canvas id: its subscribe and unsubscribe requests are handled one after the other.
        self._locks = weakref.WeakValueDictionary[str, asyncio.Lock]()

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return list(self._tasks)

    # -- subscriptions ---------------------------------------------------------------------------------------

    async def add(
        self, principal: Principal, request_id: str, params: Subscribe, warnings: list[str]
    ) -> None:
        """Open a subscription, respond to the request, and only then start the delivery of events.

        A second subscription of the same canvas is answered like the first. RS-67
        """
        canvas_id = params.canvasId
        if params.agentId is not None:
            await self._services.canvases.require_agent(principal, canvas_id, params.agentId)
        payload = with_warnings(CanvasSubscription(canvas_id, subscribed=True), warnings)
        response = frames.response(request_id, payload)
        async with self._lock(canvas_id):
            current = self._deliveries.get(canvas_id)
            if current is not None and current.is_subscribed:
                await self._send(response)
                return
            delivery = Delivery(canvas_id, params.afterSeq, is_subscribed=True)
            delivery.log = await self._open(principal, delivery)
            try:
                await self._replace_views(delivery)
                await self._send(response)
                self._start(principal, delivery)
            finally:
                if delivery.task is None:
                    delivery.log.close()

    async def remove(self, principal: Principal, params: OfCanvas) -> CanvasSubscription:
        """End the delivery of a canvas's events and return the payload of the response."""
        if params.agentId is not None:
            await self._services.canvases.require_agent(principal, params.canvasId, params.agentId)
        async with self._lock(params.canvasId):
            delivery = self._deliveries.get(params.canvasId)
            if delivery is None:
                raise NotFound(what="subscription to", id=params.canvasId[:200])
            await self._cancel(delivery)
        return CanvasSubscription(params.canvasId, subscribed=False)

    # -- views -----------------------------------------------------------------------------------------------

    def add_view(self, canvas_id: str, view_id: str, last_seq: int) -> bool:
        """Prepare the delivery of the events after `last_seq` to a view. RS-67

        Returns False if the connection has no room for another delivery.
        """
        delivery = self._deliveries.get(canvas_id)
        if delivery is None:
            delivery = Delivery(canvas_id, last_seq, sent=last_seq)
            try:
                self._register(delivery)
            except TooMany:
                return False
        delivery.views.add(view_id)
        return True

    def start_view(self, principal: Principal, canvas_id: str) -> None:
        """Start the delivery to views once the client has the response, unless a subscription delivers."""
        delivery = self._deliveries.get(canvas_id)
        if delivery is not None and delivery.task is None and not delivery.is_subscribed:
            self._start(principal, delivery)

    async def remove_views(self, canvas_id: str, view_ids: list[str]) -> None:
        """End the delivery of closed views, unless the client has other views or is subscribed."""
        delivery = self._deliveries.get(canvas_id)
        if delivery is None or not view_ids:
            return
        delivery.views.difference_update(view_ids)
        if not delivery.views and not delivery.is_subscribed:
            await self._cancel(delivery)

    # -- deliveries ------------------------------------------------------------------------------------------

    def _lock(self, canvas_id: str) -> asyncio.Lock:
        return self._locks.setdefault(canvas_id, asyncio.Lock())

    def _register(self, delivery: Delivery) -> None:
        """Make it the delivery of its canvas. Raises `TooMany`."""
        if delivery.canvas_id not in self._deliveries and len(self._deliveries) >= self._max_count:
            raise TooMany(what="subscriptions of one connection", limit=self._max_count)
        self._deliveries[delivery.canvas_id] = delivery

    async def _open(self, principal: Principal, delivery: Delivery) -> Subscription:
        log = await self._services.canvas_tails.open(principal, delivery.canvas_id, delivery.after, CANVAS)
        assert log is not None  # the log of a canvas has no end
        return log

    async def _replace_views(self, delivery: Delivery) -> None:
        """Put a subscription in place of the delivery to views, after the event that this is sending."""
        replaced = self._deliveries.get(delivery.canvas_id)
        self._register(delivery)
        if replaced is None:
            return
        delivery.views = replaced.views
        if replaced.log is not None:
            replaced.log.end()
        elif replaced.task is not None:
            replaced.task.cancel()
        if replaced.task is not None:
            await asyncio.gather(replaced.task, return_exceptions=True)
        delivery.already_sent = range((replaced.after or 0) + 1, replaced.sent + 1)

    def _start(self, principal: Principal, delivery: Delivery) -> None:
        delivery.task = asyncio.create_task(self._deliver(principal, delivery))
        self._tasks.add(delivery.task)
        delivery.task.add_done_callback(self._tasks.discard)

    async def _cancel(self, delivery: Delivery) -> None:
        del self._deliveries[delivery.canvas_id]
        if delivery.task is not None:
            delivery.task.cancel()
            await asyncio.gather(delivery.task, return_exceptions=True)

    async def _deliver(self, principal: Principal, delivery: Delivery) -> None:
        canvas_id = delivery.canvas_id
        try:
            if delivery.log is None:
                delivery.log = await self._open(principal, delivery)
            while (events := await delivery.log.next()) is not None:
                for event in events:
                    if event.seq not in delivery.already_sent:
                        await self._send(frames.event(event))
                    delivery.sent = event.seq
            await self._services.canvases.get(principal, canvas_id)
            reason = "RESUME"
        except NotFound:
            reason = DELETED
        except HostError as problem:  # such as an unavailable store: the client resumes with its last seq
            reason = problem.code
        except Exception as problem:  # noqa: BLE001 - logged by `report_error`
            reason = self._report_error("canvas.subscribe", problem).code
        finally:
            if delivery.log is not None:
                delivery.log.close()
        # Remove the delivery before the notice is sent: the client may then subscribe again at once.
        if self._deliveries.get(canvas_id) is delivery:  # else a subscription has taken over
            del self._deliveries[canvas_id]
            await self._send(frames.notice(frames.ENDED, frames.EndedSubscription(canvas_id, reason)))
