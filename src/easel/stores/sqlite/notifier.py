"""Notifications within one process, delivered in later callbacks of the event loop, not inside `notify`."""

import asyncio
from collections.abc import Callable

from easel.core.stream.notifications import Notification, RunAppended


class LocalNotifier:
    def __init__(self) -> None:
        self._listeners: list[Callable[[Notification], None]] = []
        self._pending: dict[object, Notification] = {}

    def listen(self, callback: Callable[[Notification], None]) -> None:
        self._listeners.append(callback)

    def notify(self, notification: Notification) -> None:
        if not self._pending:
            asyncio.get_running_loop().call_soon(self._deliver)
        # Of the pending notifications about one log, only the newest is delivered.
        key = notification.run_id if isinstance(notification, RunAppended) else notification
        self._pending[key] = notification

    def _deliver(self) -> None:
        pending, self._pending = self._pending, {}
        loop = asyncio.get_running_loop()
        for notification in pending.values():
            for callback in self._listeners:
                loop.call_soon(callback, notification)  # if one raises, the others still run
