"""The statements of nouns on Postgres, whose driver converts arguments and rows."""

from typing import TYPE_CHECKING, Any

from easel.stores import named_sql

if TYPE_CHECKING:
    from collections.abc import Mapping

    from easel.stores.named_sql import Statement
    from easel.stores.nouns.statements import Answer, Row, Steps
    from easel.stores.postgres.database import Connection, PostgresDatabase


class PostgresStatements:
    def __init__(self, database: "PostgresDatabase", *nouns: str) -> None:
        self._database = database
        self._statements = named_sql.load("postgres", *nouns)

    async def rows(self, name: str, /, **arguments: Any) -> "list[Row]":
        return await self._database.rows(self._statements[name], **arguments)

    async def row(self, name: str, /, **arguments: Any) -> "Row | None":
        return await self._database.row(self._statements[name], **arguments)

    async def transaction(self, steps: "Steps[Answer]") -> "Answer":
        async with self._database.connection() as connection, connection.transaction():
            return await run_steps(connection, self._statements, steps)


async def run_steps(
    connection: "Connection", statements: "Mapping[str, Statement]", steps: "Steps[Answer]"
) -> "Answer":
    """Run the statements of the steps in the caller's transaction."""
    try:
        name, arguments = next(steps)
        while True:
            statement = statements[name]
            rows = await connection.fetch(statement.sql, *statement.arguments(arguments))
            name, arguments = steps.send(rows)
    except StopIteration as end:
        return end.value
