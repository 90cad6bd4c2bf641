"""The logs of canvases, kept as long as the operator wants: what is older is dropped, from the beginning, in small pieces.

Whoever comes back with a cursor from before that is told so (410), and reads the canvas anew: the canvas itself has lost nothing.
"""

import asyncio

import structlog

from easel.core.canvas.retention import START, LogKey
from easel.host.ports import CanvasStore

INTERVAL_SECONDS = 3600.0  # days are kept: an hour more or less is nothing
CANVAS_BATCH_SIZE = 500  # canvases in one query
EVENT_BATCH_SIZE = 1_000  # events in one transaction, so that nobody waits long for it

log = structlog.get_logger("canvases")


class CanvasLogRetention:
    def __init__(self, canvases: CanvasStore, retention_seconds: float) -> None:
        self._canvases = canvases
        self._seconds = retention_seconds

    async def shorten_forever(self) -> None:
        """A duty of every worker; several may do it at once. 0 seconds: all is kept for ever."""
        while True:
            if self._seconds and (dropped := await self.once()):
                log.info("canvas_logs.shortened", events=dropped)
            await asyncio.sleep(INTERVAL_SECONDS)

    async def once(self) -> int:
        """One round over all canvases; how many events went."""
        dropped, place = 0, START
        while place is not None:
            old = await self._canvases.find_old_logs(self._seconds, place, CANVAS_BATCH_SIZE)
            for user_id, canvas_id in old.found:
                dropped += await self._shortened((user_id, canvas_id))
            place = old.next
        return dropped

    async def _shortened(self, whose: LogKey) -> int:
        dropped, step = 0, EVENT_BATCH_SIZE
        while step == EVENT_BATCH_SIZE:
            step = await self._canvases.trim_log(*whose, self._seconds, EVENT_BATCH_SIZE)
            dropped += step
        return dropped
