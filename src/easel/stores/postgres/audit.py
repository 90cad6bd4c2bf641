"""The audit chain in Postgres. The rules are in the statements of `sql/postgres/audit.sql`."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from easel.core.audit.chain import ChainEnd, ChainPosition, Checkpoint, Link
from easel.core.audit.record import Entry, StorageClass
from easel.core.stream.log import LAST_CURSOR
from easel.stores import named_sql
from easel.stores.postgres.batcher import AppendBatcher

if TYPE_CHECKING:
    from easel.stores.postgres.database import Connection, PostgresDatabase

SQL = named_sql.load("postgres", "audit")
MAX_BATCHES = 64  # calls of `append` per commit
MAX_TRANSACTIONS = 1  # a second transaction would only wait for the lock of the chain's head
MAX_COMPARED = 10_000  # newest records among which a repeated entry is searched


class PostgresAudit:
    def __init__(self, database: "PostgresDatabase") -> None:
        self._database = database
        self._appends = AppendBatcher(self._append_all, max_items=MAX_BATCHES, max_calls=MAX_TRANSACTIONS)

    async def close(self) -> None:
        await self._appends.close()

    async def append(self, entries: Sequence[Entry], *, is_repeat: bool = False) -> None:
        if entries and is_repeat:
            await self._append_missing(entries)
        elif entries:
            await self._appends.submit(entries)

    async def _append_all(self, batches: Sequence[Sequence[Entry]]) -> list[None]:
        async with self._database.connection() as connection:
            await _append(connection, [entry for batch in batches for entry in batch])
        return [None] * len(batches)

    async def _append_missing(self, entries: Sequence[Entry]) -> None:
        """Append the entries that are not among the newest records.

        The lock comes first: an earlier attempt that still runs in the server is stored before the search.
        """
        async with self._database.connection() as connection, connection.transaction():
            await connection.fetch(SQL["lock_head"].sql)
            newest = SQL["newest_records"]
            rows = await connection.fetch(newest.sql, *newest.arguments({"limit": MAX_COMPARED}))
            stored = {row["rest"] for row in rows}
            if missing := [entry for entry in entries if entry.rest not in stored]:
                await _append(connection, missing)

    async def get_checkpoint(self) -> Checkpoint | None:
        row = await self._database.row(SQL["checkpoint"])
        return row and Checkpoint(ChainPosition(row["seq"], row["hash"]), row["signature"])

    async def signing_key(self) -> str | None:
        row = await self._database.row(SQL["stored_signing_key"])
        return row and row["key"]

    async def shorten(self, checkpoint: Checkpoint) -> int:
        row = await self._database.row(
            SQL["shorten_chain"],
            seq=checkpoint.position.seq,
            hash=checkpoint.position.hash,
            signature=checkpoint.signature,
        )
        return row["count"]

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


async def _append(connection: "Connection", entries: Sequence[Entry]) -> None:
    arguments = {
        "user_ids": [entry.user_id for entry in entries],
        "ats": [entry.at for entry in entries],
        "storage_classes": [entry.storage_class.value for entry in entries],
        "actions": [entry.action for entry in entries],
        "rests": [entry.rest for entry in entries],
    }
    statement = SQL["append_records"]
    if await connection.fetchrow(statement.sql, *statement.arguments(arguments)) is None:
        raise LookupError("The head of the audit chain is missing; no record can be appended.")


def _link(row: Any) -> Link:
    return Link(**row)
