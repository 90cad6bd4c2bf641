"""The orders of accounts in Postgres, where appends run at the same time as a follow starts."""

import asyncio
from typing import TYPE_CHECKING

from easel.errors import Unavailable
from easel.stores.nouns.orders import SqlOrders
from easel.stores.postgres.statements import PostgresStatements

if TYPE_CHECKING:
    from easel.stores.postgres.database import PostgresDatabase

POLL_SECONDS = 0.01


class PostgresOrders(SqlOrders):
    def __init__(self, database: "PostgresDatabase") -> None:
        super().__init__(PostgresStatements(database, "orders"))
        # The server ends a transaction that is idle for the timeout, and a statement takes no longer either.
        self._max_wait_seconds = 2 * database.timeout

    async def _wait_for_appenders(self) -> None:
        try:
            async with asyncio.timeout(self._max_wait_seconds):
                running = await self._list_appenders()
                while running:
                    await asyncio.sleep(POLL_SECONDS)
                    running &= await self._list_appenders()
        except TimeoutError as problem:
            raise Unavailable(what="The order of the account") from problem

    async def _list_appenders(self) -> set[str]:
        return {row["appender"] for row in await self._sql.rows("list_appenders")}
