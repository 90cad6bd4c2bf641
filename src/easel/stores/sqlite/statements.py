"""The statements of a plain noun on SQLite: the conversion of arguments and rows.

A statement that only selects runs in a reader, any other in the writer's transaction. `:now` is the time at
which it runs. Lists are JSON, times are microseconds.
"""

import sqlite3
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Protocol, cast

from easel.core.stream.json_text import to_json
from easel.stores import named_sql
from easel.stores.named_sql import Statement
from easel.stores.nouns.statements import Row, Steps
from easel.stores.sqlite.executor import Answer, Work
from easel.stores.sqlite.times import from_datetime, to_datetime


class SqliteAccess(Protocol):
    """The database of a server, or access to the file of one."""

    def clock(self) -> int: ...

    async def read(self, work: Work[Answer]) -> Answer: ...

    async def write(self, work: Work[Answer]) -> Answer: ...


class SqliteStatements:
    def __init__(self, database: SqliteAccess, noun: str) -> None:
        self._database = database
        self._statements = named_sql.load("sqlite", noun)

    async def rows(self, name: str, /, **arguments: Any) -> list[Row]:
        statement = self._statements[name]
        run = self._database.read if statement.sql.startswith("select") else self._database.write
        return await run(lambda connection: _rows(connection, statement, arguments, self._database.clock))

    async def row(self, name: str, /, **arguments: Any) -> Row | None:
        return next(iter(await self.rows(name, **arguments)), None)

    async def transaction(self, steps: Steps[Answer]) -> Answer:
        return await self._database.write(
            lambda connection: run_steps(connection, self._statements, steps, self._database.clock())
        )


def run_steps(
    connection: sqlite3.Connection, statements: Mapping[str, Statement], steps: Steps[Answer], now: int
) -> Answer:
    """Run the statements of the steps in the caller's transaction."""
    try:
        name, arguments = next(steps)
        while True:
            rows = _rows(connection, statements[name], arguments, lambda: now)
            name, arguments = steps.send(rows)
    except StopIteration as end:
        return end.value


def _rows(
    connection: sqlite3.Connection,
    statement: Statement,
    arguments: Mapping[str, Any],
    clock: Callable[[], int],
) -> list[Row]:
    """Run the statement and fetch all rows: an unfinished statement would block the commit."""
    values = {name: clock() if name == "now" else _to_stored(arguments[name]) for name in statement.order}
    rows: list[Row] = connection.execute(statement.sql, values).fetchall()
    names: list[str] = rows[0].keys() if rows else []
    times = [name for name in names if f"_{name}".endswith("_at")]
    if not times:
        return rows
    decoded: list[dict[str, Any]] = [dict(zip(names, row, strict=True)) for row in rows]
    for row in decoded:
        for name in times:
            if row[name] is not None:
                row[name] = to_datetime(row[name])
    return decoded


def _to_stored(value: Any) -> Any:
    if isinstance(value, datetime):
        return from_datetime(value)
    if isinstance(value, list):
        return to_json([_to_stored(element) for element in cast("list[Any]", value)])
    return value
