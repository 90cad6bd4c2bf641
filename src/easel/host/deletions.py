"""Purging of deleted sessions, canvases and accounts.

Deleting only marks a row, which no query then finds. The rows are purged here, step by step, so that no
other statement waits long, and the blobs of an account before them. Owns when a purge runs. Does not know how
rows and blobs are stored.
"""

from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from easel.core.artifact.artifact import account_folder
from easel.host.metrics import ROWS_PURGED
from easel.host.periodic import Periodic
from easel.host.ports import BlobStore, DeletionStore

INTERVAL_SECONDS = 5.0

log = structlog.get_logger("deletions")


class DeletionPurge:
    def __init__(self, deletions: DeletionStore, blobs: BlobStore) -> None:
        self._deletions = deletions
        self._blobs = blobs

    def periodic(self) -> Periodic:
        """Return the periodic purge, which workers run. Several workers may purge at the same time."""
        return Periodic("deletions.purge", INTERVAL_SECONDS, self.once)

    async def once(self) -> int:
        """Purge all that is deleted. Returns how many rows were deleted."""
        rows = await self._purge("session", self._deletions.purge_session)
        rows += await self._purge("canvas", self._deletions.purge_canvas)
        for account_id in await self._deletions.list_accounts():
            # The account's row is deleted last, so that an interrupted purge is continued. A blob that a
            # worker stores after this has no row in the end, and is swept like any such blob.
            async for key in self._blobs.list(account_folder(account_id)):
                await self._blobs.delete(key)
            rows += await self._purge("account", partial(self._deletions.purge_account, account_id))
        return rows

    async def _purge(self, kind: str, step: Callable[[], Awaitable[int]]) -> int:
        rows = 0
        while deleted := await step():
            rows += deleted
            ROWS_PURGED.labels(kind).inc(deleted)
        if rows:
            log.info("deletions.purged", kind=kind, rows=rows)
        return rows
