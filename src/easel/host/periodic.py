"""A supervised background loop for the periodic work of a process.

Owns the interval, the early wake-up and the policy for failures: an unavailable database is logged as info,
any other error as an exception, and neither ends the loop. Owns also how a sweep over many rows goes on after
a failure. Does not know what the work is.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from easel.errors import Unavailable

log = structlog.get_logger("periodic")

QUIET_SECONDS = 10.0  # an unavailable database is logged at most this often, even if the interval is shorter

# A sweep continues after a part that failed, but not for ever: the store may be unavailable.
MAX_FAILURES = 5

Work = Callable[[], Awaitable[object]]


@dataclass(slots=True)
class SweepProgress:
    """The result of a sweep. The parts that failed are repeated by the next sweep."""

    count: int = 0
    failure_count: int = 0
    problem: Unavailable | None = None  # the last one

    async def add(self, part: Awaitable[int]) -> None:
        """Count what a part of the sweep did. Raises `Unavailable` if too many parts have failed."""
        try:
            self.count += await part
        except Unavailable as problem:
            self.problem = problem
            self.failure_count += 1
            if self.failure_count >= MAX_FAILURES:
                raise


def retention_interval(longest_seconds: float, retention_seconds: float) -> float:
    """Return how often to delete what is older than the retention time: at least four times in that time."""
    return min(longest_seconds, max(retention_seconds / 4, 1.0)) if retention_seconds else longest_seconds


class Periodic:
    """Calls `work` every `every` seconds until stopped, and at once when `wake()` is called.

    The first call is after `delay` seconds. `on_error` is called with each error except `Unavailable`, after
    the error was logged.
    """

    def __init__(
        self,
        name: str,
        every: float,
        work: Work,
        *,
        delay: float = 0.0,
        on_error: Callable[[Exception], None] | None = None,
    ) -> None:
        self.name = name
        self._every = every
        self._work = work
        self._delay = delay
        self.on_error = on_error
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._quiet_until = 0.0

    def wake(self) -> None:
        """Call `work` now instead of at the end of the interval."""
        self._woken.set()

    def start(self) -> None:
        """Start the loop in its own task, unless it was started before."""
        if self._task is None:
            self._task = asyncio.create_task(self.run(), name=self.name)

    async def stop(self) -> None:
        """Cancel the task and wait for its end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)  # raises if the caller is cancelled
            self._task = None

    async def run(self) -> None:
        """Run the loop in the caller's task, until that task is cancelled."""
        if self._delay:
            await self._wait(self._delay)
        while True:
            self._woken.clear()
            await self.once()
            await self._wait(self._every)

    async def once(self) -> None:
        """Call `work` once and log its failure."""
        try:
            await self._work()
        except Unavailable:
            if time.monotonic() >= self._quiet_until:
                self._quiet_until = time.monotonic() + QUIET_SECONDS
                log.info("periodic.database_unavailable", work=self.name)
        except Exception as problem:
            log.exception("periodic.error", work=self.name)
            if self.on_error is not None:
                self.on_error(problem)

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
