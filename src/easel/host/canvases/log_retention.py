"""Retention of canvas logs: events older than the retention time are deleted from the start of each log.

Owns the batches of one pass over all canvases. A reader whose cursor is older than the remaining log receives
410 and reads the canvas again; the canvas itself is unchanged. Does not know how events are stored.
"""

import structlog

from easel.core.canvas.retention import START, LogKey
from easel.host.periodic import Periodic, retention_interval
from easel.host.ports import CanvasStore

INTERVAL_SECONDS = 3600.0
CANVAS_BATCH_SIZE = 500  # canvases in one query
EVENT_BATCH_SIZE = 1_000  # events in one transaction, so that other writers wait only briefly

log = structlog.get_logger("canvases")


class CanvasLogRetention:
    """Trims the logs of all canvases. If `retention_seconds` is 0, events are kept forever."""

    def __init__(self, canvases: CanvasStore, retention_seconds: float) -> None:
        self._canvases = canvases
        self._seconds = retention_seconds

    def periodic(self) -> Periodic:
        """Return the periodic trim, which workers run. Several workers may trim at the same time."""
        every_seconds = retention_interval(INTERVAL_SECONDS, self._seconds)
        return Periodic("canvas_logs.retention", every_seconds, self.once)

    async def once(self) -> int:
        """Trim the logs of all canvases. Returns how many events were deleted."""
        if not self._seconds:
            return 0
        deleted, position = 0, START
        while position is not None:
            batch = await self._canvases.find_old_logs(self._seconds, position, CANVAS_BATCH_SIZE)
            for key in batch.keys:
                deleted += await self._trim(key)
            position = batch.next
        if deleted:
            log.info("canvas_logs.trimmed", events=deleted)
        return deleted

    async def _trim(self, key: LogKey) -> int:
        deleted, count = 0, EVENT_BATCH_SIZE
        while count == EVENT_BATCH_SIZE:
            count = await self._canvases.trim_log(*key, self._seconds, EVENT_BATCH_SIZE)
            deleted += count
        return deleted
