"""Notifications across instances: LISTEN/NOTIFY on a dedicated connection.

Notifications are sent after the commit that they announce: a NOTIFY in the writing transaction would hold a
global lock during its fsync. Notifications that arrive during a send are sent together afterwards. If the
connection fails, notifications are lost and the connection is reopened; readers also poll, so they miss no
event.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import asyncpg
import structlog

from easel.core.stream.notifications import LogAppended, Notification, from_text, to_text
from easel.stores.postgres.database import is_transient

CHANNEL = "easel"
MAX_PENDING = 10_000  # while the connection is down; more are dropped, since readers also poll
MAX_PAYLOAD_LENGTH = 7_900  # Postgres rejects payloads of 8,000 bytes and more
CHECK_SECONDS = 5.0  # between two checks of an idle connection
CLOSE_SECONDS = 1.0  # maximum time to send the last notifications
MIN_RETRY_SECONDS, MAX_RETRY_SECONDS = 0.1, 5.0

log = structlog.get_logger("notifier")


class PostgresNotifier:
    def __init__(self, options: dict[str, Any], timeout: float) -> None:
        self._options: dict[str, Any] = {
            **options,
            "server_settings": {**options["server_settings"], "application_name": "easel notifier"},
        }
        self._timeout = timeout
        self._listeners: list[Callable[[Notification], None]] = []
        self._outbox: dict[object, Notification] = {}
        self._wake = asyncio.Event()
        self._sent = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.connected = asyncio.Event()

    def listen(self, callback: Callable[[Notification], None]) -> None:
        self._listeners.append(callback)
        self._start()

    def notify(self, notification: Notification) -> None:
        self._deliver(notification)  # for listeners in this process, without a round trip
        if len(self._outbox) < MAX_PENDING:
            # Of the pending notifications about one log, only the newest is sent.
            key = (
                (type(notification), notification.key)
                if isinstance(notification, LogAppended)
                else notification
            )
            self._outbox[key] = notification
            self._wake.set()
            self._sent.clear()
        self._start()

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="notifier")

    def _deliver(self, notification: Notification) -> None:
        for callback in self._listeners:
            callback(notification)

    async def _run(self) -> None:
        wait = MIN_RETRY_SECONDS
        while True:
            try:
                await self._serve()
            except Exception as problem:  # noqa: BLE001 - logged, then retried
                wait = MIN_RETRY_SECONDS if self.connected.is_set() else min(wait * 2, MAX_RETRY_SECONDS)
                self.connected.clear()
                report = log.info if is_transient(problem) else log.error
                report("notifier.disconnected", problem=type(problem).__name__, retry_in=wait)
            await asyncio.sleep(wait)

    async def _serve(self) -> None:
        connection = await asyncpg.connect(command_timeout=self._timeout, **self._options)
        try:
            own = connection.get_server_pid()
            # Notifications are not stored, so their transactions need not be durable.
            await connection.execute("set synchronous_commit = off")
            await connection.add_listener(
                CHANNEL,
                lambda _, pid, __, payload: None if pid == own else self._on_notification(str(payload)),
            )
            # Wake up when the connection closes, so that it is reopened before the next check.
            connection.add_termination_listener(lambda _: self._wake.set())
            self.connected.set()
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CHECK_SECONDS):
                        await self._wake.wait()
                self._wake.clear()
                notifications, self._outbox = self._outbox, {}
                if notifications:
                    payloads = _pack(map(to_text, notifications.values()))
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
                self._deliver(notification)

    async def close(self) -> None:
        """Send pending notifications, such as those about released runs, and close the connection."""
        if self._task is None:
            return
        if self._outbox and self.connected.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._sent.wait()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._task = None


def _pack(texts: Iterable[str]) -> list[str]:
    """Join texts into payloads of up to MAX_PAYLOAD_LENGTH characters."""
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
