"""The statements of nouns on SQLite: the conversion of arguments and rows.

A statement that only selects runs in a reader, any other in the writer's transaction. `:now` is the time at
which it runs. Lists are JSON, times are microseconds.
"""

import sqlite3
from collections.abc import Mapping
from datetime import datetime
from types import NoneType
from typing import Any, Protocol, cast

from easel.core.stream.json_text import to_json
from easel.stores import named_sql
from easel.stores.named_sql import Statement
from easel.stores.nouns.statements import Row, Steps
from easel.stores.sqlite.executor import Answer, Work
from easel.stores.sqlite.times import from_datetime, to_datetime

_PLAIN = frozenset({str, int, float, bool, bytes, NoneType})  # stored as they are
_COLUMNS: dict[tuple[str, int], tuple[list[str], list[str]]] = {}  # of a statement, all and its times


class SqliteAccess(Protocol):
    """The database of a server, or access to the file of one."""

    def clock(self) -> int: ...

    async def read(self, work: Work[Answer]) -> Answer: ...

    async def write(self, work: Work[Answer]) -> Answer: ...


class SqliteStatements:
    def __init__(self, database: SqliteAccess, *nouns: str) -> None:
        self._database = database
        self._statements = named_sql.load("sqlite", *nouns)

    async def rows(self, name: str, /, **arguments: Any) -> list[Row]:
        statement = self._statements[name]
        run = self._database.read if statement.sql.startswith("select") else self._database.write
        return await run(
            lambda connection: fetch_rows(connection, statement, arguments, self._database.clock())
        )

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
            rows = fetch_rows(connection, statements[name], arguments, now)
            name, arguments = steps.send(rows)
    except StopIteration as end:
        return end.value


def fetch_rows(
    connection: sqlite3.Connection, statement: Statement, arguments: Mapping[str, Any], now: int
) -> list[Row]:
    """Run the statement and fetch all rows: an unfinished statement would block the commit."""
    values = {"now": now}
    for name in statement.order:
        if name != "now":
            value = arguments[name]
            values[name] = value if type(value) in _PLAIN else _to_stored(value)
    rows: list[Row] = connection.execute(statement.sql, values).fetchall()
    if not rows:
        return rows
    key = (statement.sql, len(rows[0]))  # `*` has more columns after a migration
    if key not in _COLUMNS:
        names: list[str] = rows[0].keys()
        _COLUMNS[key] = names, [name for name in names if f"_{name}".endswith("_at")]
    names, times = _COLUMNS[key]
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
