"""Processes that are killed at random and restarted during a journey.

Owns the choice of the victim, the times, and the supervisor that restarts. Does not know what the processes
do.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING

from tests.support.processes import READY_SECONDS
from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.support.processes import EaselProcess, Launcher

REVIVE_SECONDS = 0.2
# How often a supervisor checks whether one of its processes has ended.


class KillStorm:
    """Kills among `processes`, a list that is kept current when one is replaced.

    With `lets_all_come_back` no worker is killed before all are ready again, and then the one that was
    started first: on a slow machine kills are rarer, the victim has runs, and a worker for the take-over
    exists.
    """

    def __init__(
        self,
        launcher: Launcher,
        processes: list[EaselProcess],
        *,
        seed: int = 2026,
        lets_all_come_back: bool = False,
    ) -> None:
        self.launcher, self.processes = launcher, processes
        self._lets_all_come_back = lets_all_come_back
        self.kills = 0
        self._chance = random.Random(seed)

    @contextlib.asynccontextmanager
    async def every(self, seconds: float) -> AsyncIterator[KillStorm]:
        """Kill a random process with SIGKILL about that often, and replace it at once."""
        async with self._going(self._kill_one, seconds):
            yield self
        assert self.kills, "no process was killed"

    @contextlib.asynccontextmanager
    async def only_revive(self) -> AsyncIterator[KillStorm]:
        """Kill nothing, but replace a process that ends."""
        async with self._going(self._revive, REVIVE_SECONDS):
            yield self

    @contextlib.asynccontextmanager
    async def _going(self, act: Callable[[], None], seconds: float) -> AsyncIterator[None]:
        over = asyncio.Event()

        async def go() -> None:
            while not over.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(seconds * self._chance.uniform(0.7, 1.3)):
                        await over.wait()
                        return
                await asyncio.to_thread(act)

        weather = asyncio.create_task(go())
        try:
            yield
        finally:
            over.set()
            await weather  # finish a kill or start that has begun: no thread acts after the test
            await asyncio.to_thread(self._revive)

    def _kill_one(self) -> None:
        self._revive()
        if self._lets_all_come_back:
            wait_for_sync(
                lambda: all("worker.started" in one.output() for one in self.processes),
                within=READY_SECONDS,
                what="all are at work",
            )
            victim = min(self.processes, key=self.launcher.started.index)
        else:
            victim = self._chance.choice(self.processes)
        victim.kill()
        self.kills += 1
        self._revive()

    def _revive(self) -> None:
        for index, one in enumerate(self.processes):
            if not one.is_alive:
                self.processes[index] = self.launcher.again(one)
        # One API at a time, as in a rolling restart: the next is only killed when this one serves again.
        self.launcher.ready(*(one for one in self.processes if one.listens))
