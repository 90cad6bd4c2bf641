"""For how long what an action does is waited for: until it ends, until its time is over, or until somebody stops it.

Owns the end of waiting. What is told to end and does not, a tool that takes no notice or a thread that cannot be stopped, keeps nobody waiting:
it goes on by itself, what it gives is dropped, and it is counted for as long as it lasts. CV-23
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

from easel.errors import TimedOut
from easel.host.metrics import ACTIONS_ABANDONED

GRACE_SECONDS = 2.0
# What ends when it is told to has ended by then: a command with all that it started. A person who pressed "stop" waits no longer.
MIN_MS = 1_000  # an answer that is there already is read, however late somebody is found to take it

log = structlog.get_logger("actions")


class Deadlines:
    def __init__(self, grace_seconds: float = GRACE_SECONDS) -> None:
        self.grace_seconds = grace_seconds
        self._overdue: set[asyncio.Task[Any]] = set()

    @property
    def overdue(self) -> int:
        """How much goes on that nobody waits for any more."""
        return len(self._overdue)

    async def within(
        self, milliseconds: float, what: str, work: Coroutine[Any, Any, Any], *, already_ms: float = 0
    ) -> Any:
        """What it gives. What takes longer, or whose waiting is cancelled, is told to end, and what it gives all the same is not heard."""
        left_ms = max(milliseconds - already_ms, MIN_MS) if already_ms else milliseconds
        task = asyncio.create_task(work)
        try:
            done, _ = await asyncio.wait([task], timeout=left_ms / 1000)
        except asyncio.CancelledError:
            await self._end(task, what)
            raise
        if done:
            return task.result()
        await self._end(task, what)
        raise TimedOut(what=what, seconds=f"{milliseconds / 1000:g}")

    async def _end(self, task: asyncio.Task[Any], what: str) -> None:
        task.cancel()
        try:
            await asyncio.wait([task], timeout=self.grace_seconds)
        finally:
            self._let_go(task, what)

    def _let_go(self, task: asyncio.Task[Any], what: str) -> None:
        if task.done():
            _take_note(task)
            return
        log.warning("actions.overdue", what=what, seconds=self.grace_seconds)
        self._overdue.add(task)
        ACTIONS_ABANDONED.set(self.overdue)
        task.add_done_callback(lambda ended: self._ended(ended, what))

    def _ended(self, task: asyncio.Task[Any], what: str) -> None:
        self._overdue.discard(task)
        ACTIONS_ABANDONED.set(self.overdue)
        _take_note(task)
        log.info("actions.overdue_ended", what=what)


def _take_note(task: asyncio.Task[Any]) -> None:
    """What it gave, or failed with, is nobody's any more."""
    if not task.cancelled():
        task.exception()
