"""Port of the audit trail: its store."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from easel.core.audit.chain import ChainEnd, Link
from easel.core.audit.record import Entry, StorageClass


class AuditStore(Protocol):
    """The audit chain, which is append-only."""

    async def append(self, entries: Sequence[Entry]) -> None:
        """Append the entries without a gap, in this order. Durable when it returns. CC-06"""
        ...

    async def get_end(self) -> ChainEnd: ...

    async def list_after(self, seq: int, last: int, limit: int) -> list[Link]:
        """Return the records above `seq` up to `last`, in the order of the chain."""
        ...

    async def list_records(
        self,
        *,
        action: str | None,
        storage_class: StorageClass | None,
        since: datetime | None,
        until: datetime | None,
        before: int | None,
        limit: int,
    ) -> list[Link]:
        """Return records below the `seq` in `before`, newest first.

        `since` is inclusive, `until` exclusive.
        """
        ...
