"""Claims of sweeps in SQLite. The rule is in the statement of `sql/sqlite/sweeps.sql`."""

from typing import TYPE_CHECKING

from easel.stores import named_sql
from easel.stores.sqlite.times import microseconds

if TYPE_CHECKING:
    from easel.stores.sqlite.database import SqliteDatabase

SQL = named_sql.load("sqlite", "sweeps")


class SqliteSweeps:
    def __init__(self, database: "SqliteDatabase") -> None:
        self._database = database

    async def claim(self, name: str, seconds: float) -> bool:
        now = self._database.clock()
        arguments = {"name": name, "now": now, "until": now + microseconds(seconds)}
        claimed = await self._database.write(
            lambda connection: connection.execute(SQL["claim_sweep"].sql, arguments).fetchall()
        )
        return bool(claimed)
