"""The audit chain in Postgres. The rules are in the statements of `sql/postgres/audit.sql`."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from easel.core.audit.chain import ChainEnd, ChainPosition, Link
from easel.core.audit.record import Entry, StorageClass
from easel.core.stream.log import LAST_CURSOR
from easel.stores import named_sql
from easel.stores.postgres.batcher import AppendBatcher

if TYPE_CHECKING:
    from easel.stores.postgres.database import PostgresDatabase

SQL = named_sql.load("postgres", "audit")
MAX_BATCHES = 64  # calls of `append` per commit
MAX_TRANSACTIONS = 1  # a second transaction would only wait for the lock of the chain's head


class PostgresAudit:
    def __init__(self, database: "PostgresDatabase") -> None:
        self._database = database
        self._appends = AppendBatcher(self._append_all, max_items=MAX_BATCHES, max_calls=MAX_TRANSACTIONS)

    async def close(self) -> None:
        await self._appends.close()

    async def append(self, entries: Sequence[Entry]) -> None:
        if entries:
            await self._appends.submit(entries)

    async def _append_all(self, batches: Sequence[Sequence[Entry]]) -> list[None]:
        entries = [entry for batch in batches for entry in batch]
        row = await self._database.row(
            SQL["append_records"],
            user_ids=[entry.user_id for entry in entries],
            ats=[entry.at for entry in entries],
            storage_classes=[entry.storage_class.value for entry in entries],
            actions=[entry.action for entry in entries],
            rests=[entry.rest for entry in entries],
        )
        if row is None:
            raise LookupError("The head of the audit chain is missing; no record can be appended.")
        return [None] * len(batches)

    async def get_end(self) -> ChainEnd:
        row = await self._database.row(SQL["end_of_chain"])
        return ChainEnd(
            None if row["last_seq"] is None else ChainPosition(row["last_seq"], row["last_hash"]),
            row["newest"],
        )

    async def list_after(self, seq: int, last: int, limit: int) -> list[Link]:
        return [
            _link(row)
            for row in await self._database.rows(SQL["records_after"], seq=seq, last=last, limit=limit)
        ]

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
        rows = await self._database.rows(
            SQL["list_records" if action is None else "list_records_of_action"],
            action=action,
            storage_class=storage_class.value if storage_class else None,
            since=since,
            until=until,
            before=LAST_CURSOR if before is None else before,
            limit=limit,
        )
        return [_link(row) for row in rows]


def _link(row: Any) -> Link:
    return Link(**row)
