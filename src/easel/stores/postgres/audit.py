"""The audit chain in Postgres. The rules are in the statements of `audit.sql`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from easel.core.audit.record import Entry
from easel.stores import named_sql
from easel.stores.nouns.audit import MAX_COMPARED, SqlAudit
from easel.stores.postgres.batcher import AppendBatcher
from easel.stores.postgres.statements import PostgresStatements

if TYPE_CHECKING:
    from easel.stores.postgres.database import Connection, PostgresDatabase

SQL = named_sql.load("postgres", "audit")
MAX_BATCHES = 64  # calls of `append` per commit
MAX_TRANSACTIONS = 1  # a second transaction would only wait for the lock of the chain's head


class PostgresAudit(SqlAudit):
    def __init__(self, database: "PostgresDatabase") -> None:
        super().__init__(PostgresStatements(database, "audit"))
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


async def _append(connection: "Connection", entries: Sequence[Entry]) -> None:
    arguments = {
        "account_ids": [entry.account_id for entry in entries],
        "ats": [entry.at for entry in entries],
        "storage_classes": [entry.storage_class.value for entry in entries],
        "actions": [entry.action for entry in entries],
        "rests": [entry.rest for entry in entries],
    }
    statement = SQL["append_records"]
    if await connection.fetchrow(statement.sql, *statement.arguments(arguments)) is None:
        raise LookupError("The head of the audit chain is missing; no record can be appended.")
