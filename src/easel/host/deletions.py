"""Purging of deleted sessions and canvases.

Deleting only marks a row, which no query then finds. The rows are purged here, step by step, so that no
other statement waits long. Owns when a purge runs. Does not know how rows are stored.
"""

from collections.abc import Awaitable, Callable

import structlog

from easel.host.metrics import ROWS_PURGED
from easel.host.periodic import Periodic
from easel.host.ports import DeletionStore

INTERVAL_SECONDS = 5.0

log = structlog.get_logger("deletions")


class DeletionPurge:
    def __init__(self, deletions: DeletionStore) -> None:
        self._deletions = deletions

    def periodic(self) -> Periodic:
        """Return the periodic purge, which workers run. Several workers may purge at the same time."""
        return Periodic("deletions.purge", INTERVAL_SECONDS, self.once)

    async def once(self) -> int:
        """Purge all deleted sessions and canvases. Returns how many rows were deleted."""
        return await self._purge("session", self._deletions.purge_session) + await self._purge(
            "canvas", self._deletions.purge_canvas
        )

    async def _purge(self, kind: str, step: Callable[[], Awaitable[int]]) -> int:
        rows = 0
        while deleted := await step():
            rows += deleted
            ROWS_PURGED.labels(kind).inc(deleted)
        if rows:
            log.info("deletions.purged", kind=kind, rows=rows)
        return rows
