"""What the audit trail needs from outside: its store."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from easel.core.audit.chain import End, Link
from easel.core.audit.record import Entry, StorageClass


class AuditStore(Protocol):
    """The audit chain: only ever added to, behind its one end."""

    async def append(self, entries: Sequence[Entry]) -> None:
        """All of them, next to each other and in this order; durable when it returns. CC-06"""
        ...

    async def get_end(self) -> End: ...

    async def list_after(self, seq: int, last: int, limit: int) -> list[Link]:
        """In the chain's order, from above `seq` up to `last`."""
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
        """Newest first; `since` belongs to it, `until` does not; `before` is the `seq` to go on below."""
        ...
