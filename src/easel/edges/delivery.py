"""The delivery of logs to a client: `deliver` sends one log, `Deliveries` follows several for one connection.

A log is followed by one task as long as there is a reason, such as a subscription or an open view. A second
reason restarts nothing and changes nothing for the first: each event is sent once. If it asks for older
events, they follow those that were already sent. Does not know canvases or frames.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

from easel.core.stream.log import LoggedEvent
from easel.edges.socket import Socket
from easel.errors import TooMany
from easel.host.streams import Subscription

SUBSCRIBED = "subscribed"  # the reason of a client that has subscribed


async def deliver(log: Subscription, send_page: Callable[[list[LoggedEvent]], Awaitable[None]]) -> None:
    """Send the pages of a log until it ends; an empty page is a heartbeat."""
    while (events := await log.next()) is not None:
        await send_page(events)


@dataclass(eq=False, slots=True)
class Delivery:
    """The delivery of one log to one client."""

    start: int  # the seq after which it starts
    reasons: set[str] = field(default_factory=set[str])
    asked: int | None = None  # the seq before `start` that a later reason asked for, not answered yet
    older: int | None = None  # the same, once the client has the answer
    sent: range = range(0)  # what was sent before the older events
    log: Subscription | None = None  # None: its task has not opened it yet
    task: asyncio.Task[None] | None = None  # None: the client has no answer yet


@dataclass(eq=False, slots=True)
class Deliveries:
    """The logs that one connection follows, by a key for each."""

    socket: Socket
    open_log: Callable[[str, int | None], Awaitable[Subscription]]
    format_event: Callable[[str, LoggedEvent], str]
    format_end: Callable[[str, Exception | None], Awaitable[str]]  # of a log that has ended, or failed
    max_count: int
    # Held while a view is opened: closing it waits until it is a reason.
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    _subscribing: asyncio.Lock = field(default_factory=asyncio.Lock)  # one request after the other
    _deliveries: dict[str, Delivery] = field(default_factory=dict[str, Delivery])

    async def subscribe(self, key: str, after: int | None) -> None:
        """Follow a log after `after`, or from its oldest event; a second subscription changes nothing. RS-67

        Raises `TooMany`, and what opening the log raises.
        """
        async with self._subscribing:
            followed = self._deliveries.get(key)
            if followed is not None and SUBSCRIBED in followed.reasons:
                return
            with closing(await self.open_log(key, after)) as log:  # so that a bad cursor is refused
                self.follow(key, SUBSCRIBED, log.cursor)

    async def unsubscribe(self, key: str) -> bool:
        """End a delivery, whatever its reasons. Returns False if there is none."""
        async with self._subscribing:
            return await self._end(key)

    def follow(self, key: str, reason: str, after: int) -> None:
        """Add a reason to follow a log after `after`, which `start` then does. Raises `TooMany`."""
        delivery = self._deliveries.get(key)
        if delivery is None:
            if len(self._deliveries) >= self.max_count:
                raise TooMany(what="subscriptions of one connection", limit=self.max_count)
            delivery = self._deliveries[key] = Delivery(after)
        elif after < delivery.start:
            delivery.asked = after
        delivery.reasons.add(reason)

    def start(self, key: str) -> None:
        """Start what was asked for, once the client has the answer."""
        delivery = self._deliveries.get(key)
        if delivery is None:
            return
        if delivery.asked is not None:
            delivery.older, delivery.asked = delivery.asked, None
        if delivery.task is None:
            delivery.task = self.socket.start(self._deliver(key, delivery))
        elif delivery.log is not None:
            delivery.log.beat()  # an empty page, after which the older events are sent

    async def leave(self, key: str, reasons: Collection[str]) -> None:
        """Remove reasons; without any left the delivery ends."""
        if (delivery := self._deliveries.get(key)) is not None:
            delivery.reasons.difference_update(reasons)
            if not delivery.reasons:
                await self._end(key)

    async def _end(self, key: str) -> bool:
        delivery = self._deliveries.pop(key, None)
        if delivery is not None and delivery.task is not None:
            delivery.task.cancel()
            await asyncio.gather(delivery.task, return_exceptions=True)
        return delivery is not None

    async def _deliver(self, key: str, delivery: Delivery) -> None:
        problem: Exception | None = None
        try:
            with closing(await self.open_log(key, delivery.start)) as delivery.log:
                send_page = partial(self._send_page, key, delivery, delivery.log)
                await send_page([])
                await deliver(delivery.log, send_page)
        except Exception as error:  # noqa: BLE001 - reported to the client
            problem = error
        notice = await self.format_end(key, problem)
        del self._deliveries[key]  # before the notice: the client may then follow the log again at once
        await self.socket.send(notice)

    async def _send_page(
        self, key: str, delivery: Delivery, log: Subscription, events: list[LoggedEvent]
    ) -> None:
        """Send the events that were not sent before, then return to the older ones that were asked for."""
        for event in events:
            if event.seq not in delivery.sent:
                await self.socket.send(self.format_event(key, event))
        if delivery.older is not None:
            delivery.sent = range(delivery.start + 1, log.cursor + 1)
            log.cursor = delivery.start = delivery.older
            delivery.older = None
