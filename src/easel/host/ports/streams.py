"""Ports of event streams: a log to read, and notifications."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from easel.core.stream.log import Bounds, LoggedEvent
from easel.core.stream.notifications import Notification
from easel.ids import AccountId


class LogSource(Protocol):
    """The logs of one kind: of runs, sessions or canvases. `host.streams.Tails` reads them."""

    async def bounds(self, account_id: AccountId, name: Any, /) -> Bounds | None: ...

    async def heads(self, keys: Sequence[Any], /) -> Mapping[Any, int]: ...

    async def events_after(self, key: Any, cursor: int, limit: int, /) -> list[LoggedEvent]: ...


class Notifier(Protocol):
    """Sends notifications to the listeners on all instances.

    Logs are the source of truth: after a lost notification, the next poll finds the new events.
    """

    def notify(self, notification: Notification) -> None: ...

    def listen(self, callback: Callable[[Notification], None]) -> None: ...
