"""Port of the audit trail: its store."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from easel.core.audit.chain import ChainEnd, Checkpoint, Link
from easel.core.audit.record import Entry, StorageClass
from easel.ids import AccountId


class AuditStore(Protocol):
    """The audit chain, which is append-only; old records are removed from its start only."""

    async def append(self, entries: Sequence[Entry], *, is_repeat: bool = False) -> None:
        """Append the entries without a gap, in this order. Durable when it returns. CC-06

        `is_repeat`: an earlier attempt may have been stored; entries among the newest records are left out.
        """
        ...

    async def get_checkpoint(self) -> Checkpoint | None:
        """Return the checkpoint at which the chain begins, or None if no record was removed."""
        ...

    async def signing_key(self) -> str | None:
        """Return the stored key that signs checkpoints if EASEL_SECRET_KEY is not set."""
        ...

    async def shorten(self, checkpoint: Checkpoint) -> int:
        """Remove the records up to the checkpoint and store it. Returns how many were removed. RS-69

        A checkpoint before the stored one changes nothing.
        """
        ...

    async def get_end(self) -> ChainEnd: ...

    async def list_after(self, seq: int, last: int, limit: int) -> list[Link]:
        """Return the records above `seq` up to `last`, in the order of the chain."""
        ...

    async def list_records(
        self,
        account_id: AccountId,
        *,
        of_host: bool,
        action: str | None,
        storage_class: StorageClass | None,
        since: datetime | None,
        until: datetime | None,
        before: int | None,
        limit: int,
    ) -> list[Link]:
        """Return records of an account below the `seq` in `before`, newest first.

        With `of_host`, also those that belong to no account.

        `since` is inclusive, `until` exclusive.
        """
        ...
