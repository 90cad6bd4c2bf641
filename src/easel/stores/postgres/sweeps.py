"""Claims of sweeps in Postgres. The rule is in the statement of `sql/postgres/sweeps.sql`."""

from typing import TYPE_CHECKING

from easel.stores import named_sql

if TYPE_CHECKING:
    from easel.stores.postgres.database import PostgresDatabase

SQL = named_sql.load("postgres", "sweeps")


class PostgresSweeps:
    def __init__(self, database: "PostgresDatabase") -> None:
        self._database = database

    async def claim(self, name: str, seconds: float) -> bool:
        return await self._database.row(SQL["claim_sweep"], name=name, seconds=seconds) is not None
