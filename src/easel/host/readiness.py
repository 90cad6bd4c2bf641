"""Whether this instance can do durable work right now: asked of the store by a real write, at most once a second."""

import asyncio
import time

from easel.errors import Unavailable
from easel.host.ports import RunStore

FRESH_SECONDS = 1.0
CHECK_TIMEOUT_SECONDS = 3.0


class Readiness:
    def __init__(self, runs: RunStore) -> None:
        self._runs = runs
        self._good_until = 0.0
        self._asking = asyncio.Lock()
        self.is_stopping = False

    async def check(self) -> None:
        """Raises `Unavailable` when work sent here would have to be refused."""
        if self.is_stopping:
            raise Unavailable(what="This instance")
        async with self._asking:  # a crowd of probes asks the store once
            if time.monotonic() < self._good_until:
                return
            try:
                async with asyncio.timeout(CHECK_TIMEOUT_SECONDS):
                    await self._runs.probe()
            except TimeoutError:
                raise Unavailable(what="The database") from None
            self._good_until = time.monotonic() + FRESH_SECONDS
