"""The bell across instances: LISTEN/NOTIFY on one connection of its own.

Rings are collected while one is on its way and sent together, after the commit they tell of and beside it: a NOTIFY
inside the writing transaction would hold a global lock over its fsync. A bell that is out of order loses rings and
nothing else, and mends itself.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import asyncpg
import structlog

from easel.core.stream.notifications import Grew, Notification, from_text, to_text
from easel.stores.postgres.database import is_transient

CHANNEL = "easel"
MAX_WAITING = 10_000  # rings kept while the bell is out of order; beyond that the poll serves
MAX_PAYLOAD_LENGTH = 7_900  # Postgres refuses 8,000 bytes
CHECK_SECONDS = 5.0  # how often a quiet connection is asked whether it still lives
LAST_RING_SECONDS = 1.0
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 0.1, 5.0

log = structlog.get_logger("bell")


class PostgresNotifier:
    def __init__(self, options: dict[str, Any], timeout: float) -> None:
        self._options: dict[str, Any] = {
            **options,
            "server_settings": {**options["server_settings"], "application_name": "easel bell"},
        }
        self._timeout = timeout
        self._listeners: list[Callable[[Notification], None]] = []
        self._outbox: dict[object, Notification] = {}
        self._something = asyncio.Event()
        self._sent = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self.connected = asyncio.Event()

    def listen(self, hear: Callable[[Notification], None]) -> None:
        self._listeners.append(hear)
        self._start()

    def notify(self, notification: Notification) -> None:
        self._tell(notification)  # who waits in this process need not wait for the round trip
        if len(self._outbox) < MAX_WAITING:
            self._outbox[
                (type(notification), notification.key) if isinstance(notification, Grew) else notification
            ] = notification  # of a growing log only the newest matters
            self._something.set()
            self._sent.clear()
        self._start()

    def _start(self) -> None:
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep(), name="bell")

    def _tell(self, notification: Notification) -> None:
        for hear in self._listeners:
            hear(notification)

    async def _keep(self) -> None:
        wait = FIRST_RETRY_SECONDS
        while True:
            try:
                await self._serve()
            except Exception as problem:  # noqa: BLE001 - whatever it is, the bell is worth another try
                wait = FIRST_RETRY_SECONDS if self.connected.is_set() else min(wait * 2, LAST_RETRY_SECONDS)
                self.connected.clear()
                tell = log.info if is_transient(problem) else log.error
                tell("bell.lost", problem=type(problem).__name__, retry_in=wait)
            await asyncio.sleep(wait)

    async def _serve(self) -> None:
        connection = await asyncpg.connect(command_timeout=self._timeout, **self._options)
        try:
            own = connection.get_server_pid()
            # A ring tells of what is durable already, so it need not be durable itself.
            await connection.execute("set synchronous_commit = off")
            await connection.add_listener(
                CHANNEL,
                lambda _, pid, __, payload: None if pid == own else self._on_notification(str(payload)),
            )
            connection.add_termination_listener(
                lambda _: self._something.set()
            )  # found out at once, not at the next check
            self.connected.set()
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CHECK_SECONDS):
                        await self._something.wait()
                self._something.clear()
                notifications, self._outbox = self._outbox, {}
                if notifications:
                    payloads = _packed(map(to_text, notifications.values()))
                    await connection.execute(
                        "select pg_notify($1, payload) from unnest($2::text[]) payload", CHANNEL, payloads
                    )
                    if not self._outbox:
                        self._sent.set()
                else:
                    await connection.execute("select 1")
        finally:
            connection.terminate()

    def _on_notification(self, payload: str) -> None:
        for text in payload.split(" "):
            if (notification := from_text(text)) is not None:
                self._tell(notification)

    async def close(self) -> None:
        """Sends what it still holds: the last rings tell other instances of runs that were handed back."""
        if self._keeper is None:
            return
        if self._outbox and self.connected.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_RING_SECONDS):
                    await self._sent.wait()
        self._keeper.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._keeper
        self._keeper = None


def _packed(texts: Iterable[str]) -> list[str]:
    """As many rings in one notification as fit."""
    packed: list[str] = []
    size = MAX_PAYLOAD_LENGTH
    for text in texts:
        if size + len(text) >= MAX_PAYLOAD_LENGTH:
            packed.append(text)
            size = len(text)
        else:
            packed[-1] += " " + text
            size += len(text) + 1
    return packed
