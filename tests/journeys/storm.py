"""Bad weather on purpose: processes that are killed and brought back while a journey goes on.

Owns when and whom to kill, and the supervisor that restarts. Knows nothing of what the processes do.
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
# How often a supervisor looks whether one of its processes has died.


class KillStorm:
    """Over `processes`, a list that is kept current as the dead are replaced.

    One that `lets_all_come_back` kills no worker before all are at work again: on a slow machine it is rarer, and there is
    always somebody to take over.
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
        """kill -9 of a random one, about that often, and its replacement at once."""
        async with self._going(self._kill_one, seconds):
            yield self
        assert self.kills, "the storm killed nobody"

    @contextlib.asynccontextmanager
    async def only_revive(self) -> AsyncIterator[KillStorm]:
        """Nobody is killed, but who dies by itself is replaced."""
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
            await (
                weather
            )  # to the end of what it has begun: no thread kills or starts anybody when the test is over
            await asyncio.to_thread(self._revive)

    def _kill_one(self) -> None:
        self._revive()
        if self._lets_all_come_back:
            wait_for_sync(
                lambda: all("worker.started" in one.said() for one in self.processes),
                within=READY_SECONDS,
                what="all are at work",
            )
        victim = self._chance.choice(self.processes)
        victim.kill()
        self.kills += 1
        self._revive()

    def _revive(self) -> None:
        for index, one in enumerate(self.processes):
            if not one.is_alive:
                self.processes[index] = self.launcher.again(one)
        # One API at a time, as a rolling restart would: the next is only hit when this one serves again.
        self.launcher.ready(*(one for one in self.processes if one.listens))
