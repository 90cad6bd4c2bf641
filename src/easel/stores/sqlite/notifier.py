"""The bell within one process: who waits is told on the event loop, soon after and never inside the call that rang."""

import asyncio
from collections.abc import Callable

from easel.core.stream.notifications import Notification, RunAppended


class LocalNotifier:
    def __init__(self) -> None:
        self._listeners: list[Callable[[Notification], None]] = []
        self._rung: dict[object, Notification] = {}

    def listen(self, hear: Callable[[Notification], None]) -> None:
        self._listeners.append(hear)

    def notify(self, notification: Notification) -> None:
        if not self._rung:
            asyncio.get_running_loop().call_soon(self._tell)
        self._rung[notification.run_id if isinstance(notification, RunAppended) else notification] = (
            notification  # of a growing log only the newest matters
        )

    def _tell(self) -> None:
        rung, self._rung = self._rung, {}
        loop = asyncio.get_running_loop()
        for notification in rung.values():
            for hear in self._listeners:
                loop.call_soon(hear, notification)  # one that fails keeps no other from hearing
