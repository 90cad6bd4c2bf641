"""Readiness of this instance: whether the store accepts a durable write, checked at most once a second."""

import asyncio
import time

from easel.errors import Unavailable
from easel.host.ports import RunStore

FRESH_SECONDS = 1.0
CHECK_TIMEOUT_SECONDS = 3.0


class Readiness:
    def __init__(self, runs: RunStore) -> None:
        self._runs = runs
        self._ready_until = 0.0
        self._checking = asyncio.Lock()
        self.is_stopping = False

    async def check(self) -> None:
        """Raise `Unavailable` if this instance cannot do durable work now."""
        if self.is_stopping:
            raise Unavailable(what="This instance")
        async with self._checking:  # concurrent probes share one write
            if time.monotonic() < self._ready_until:
                return
            try:
                async with asyncio.timeout(CHECK_TIMEOUT_SECONDS):
                    await self._runs.probe()
            except TimeoutError:
                raise Unavailable(what="The database") from None
            self._ready_until = time.monotonic() + FRESH_SECONDS
