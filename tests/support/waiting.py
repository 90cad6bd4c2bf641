"""Waiting for a condition with a deadline and a message, in coroutines and in threads. Never a
fixed sleep.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import TYPE_CHECKING, TypeVar

from tests.support.standstill import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

# A shared machine may pause for seconds. Code that works never waits this long; code that hangs is reported
# with its place.
TIMEOUT_SECONDS = 30.0
POLL_SECONDS = 0.01
# The longest pause of the machine that is not counted. pytest's own limit ends a test that waits longer.
MAX_PAUSE_SECONDS = 60.0


async def wait_for(
    condition: Callable[[], bool | Awaitable[bool]],
    *,
    what: str = "the condition holds",
    within: float = TIMEOUT_SECONDS,
) -> float:
    """Poll until the condition holds. Returns the seconds that it took; fails with `what` after `within`
    seconds.
    """
    watch, latest = Stopwatch(), time.monotonic() + within + MAX_PAUSE_SECONDS
    while True:
        checked_at = watch.seconds
        outcome = condition()
        if await outcome if inspect.isawaitable(outcome) else outcome:
            return watch.seconds
        if checked_at > within or time.monotonic() > latest:
            raise AssertionError(f"not within {within:g} s: {what}")
        await asyncio.sleep(POLL_SECONDS)


def wait_for_sync(condition: Callable[[], bool], *, what: str, within: float = TIMEOUT_SECONDS) -> float:
    """Like `wait_for`, for code without an event loop."""
    watch, latest = Stopwatch(), time.monotonic() + within + MAX_PAUSE_SECONDS
    while True:
        checked_at = watch.seconds
        if condition():
            return watch.seconds
        if checked_at > within or time.monotonic() > latest:
            raise AssertionError(f"not within {within:g} s: {what}")
        time.sleep(POLL_SECONDS)


async def within_timeout(awaitable: Awaitable[T], seconds: float = TIMEOUT_SECONDS) -> T:
    """Return the result, or fail here instead of at pytest's limit."""
    async with asyncio.timeout(seconds):
        return await awaitable
