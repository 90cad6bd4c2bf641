"""Notifications within one process: delivered soon, once, to every listener."""

from __future__ import annotations

import asyncio
from typing import Any

from easel.core.stream.notifications import CancelRequested, Notification, RunAppended, RunReady
from easel.ids import RunId
from easel.stores.sqlite.notifier import LocalNotifier
from tests.stores.harness import TIMEOUT_SECONDS


async def test_notification_is_delivered_soon_and_never_inside_notify() -> None:
    notifier, received = LocalNotifier(), asyncio.Queue[Notification]()
    notifier.listen(received.put_nowait)
    notifications: list[Notification] = [
        RunAppended(RunId("run_1"), 7),
        RunReady(anywhere=True),
        CancelRequested(RunId("run_1")),
    ]
    for notification in notifications:
        notifier.notify(notification)
        assert received.empty()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        assert [await received.get() for _ in notifications] == notifications


async def test_pending_notifications_are_delivered_once_and_only_the_newest_of_a_log() -> None:
    notifier, received = LocalNotifier(), asyncio.Queue[Notification]()
    notifier.listen(received.put_nowait)
    for seq in range(1, 100):
        notifier.notify(RunAppended(RunId("run_1"), seq))
        notifier.notify(RunReady())
        notifier.notify(RunAppended(RunId("run_2"), 5))
    async with asyncio.timeout(TIMEOUT_SECONDS):
        assert [await received.get() for _ in range(3)] == [
            RunAppended(RunId("run_1"), 99),
            RunReady(),
            RunAppended(RunId("run_2"), 5),
        ]
        notifier.notify(RunReady())
        assert await received.get() == RunReady()
    assert received.empty()


async def test_failing_listener_does_not_affect_the_others() -> None:
    notifier, received = LocalNotifier(), asyncio.Queue[Notification]()
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))

    def fails(_: Notification) -> None:
        raise LookupError

    notifier.listen(fails)
    notifier.listen(received.put_nowait)
    notifier.notify(RunReady())
    async with asyncio.timeout(TIMEOUT_SECONDS):
        assert await received.get() == RunReady()
    assert [type(problem["exception"]) for problem in problems] == [LookupError]
