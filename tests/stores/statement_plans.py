"""Explains and runs statements on a filled database, and reports those that read too much.

A statement must read a number of rows that does not grow with its tables. On Postgres the rows that each part
of the plan reads are counted, with generic plans and the connection settings of the product. SQLite has no
such counts: there the steps of the virtual machine are counted. Changes are rolled back.
"""

from __future__ import annotations

import json
import re
import sqlite3
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

import asyncpg

from easel.stores import named_sql
from tests.stores.filled_tables import BOUNDED_TABLES
from tests.stores.sample_arguments import argument_sets, postgres_literal, sqlite_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from easel.stores.named_sql import Statement
    from easel.stores.postgres.database import Connection

# A page of 500 rows and its references fit in; a tenth of a filled table does not.
MAX_ROWS_READ = 1_000
# A page takes up to 3,500 steps, and each changed row some for each index.
MAX_SQLITE_STEPS = 6_000
MAX_SQLITE_STEPS_PER_CHANGE = 100
_STEPS_PER_CALL = 100


@dataclass(frozen=True)
class Complaint:
    """A statement that reads too much, and how."""

    statement: str
    problem: str
    arguments: dict[str, Any]


def all_statements(dialect: str) -> list[tuple[str, Statement]]:
    """Return every statement of the product as `noun.name`."""
    folder = resources.files("easel.stores").joinpath("sql")
    nouns = sorted(
        {
            file.name.removesuffix(".sql")
            for name in ("common", dialect)
            for file in folder.joinpath(name).iterdir()
        }
        - {"logs"}  # definitions, which the other nouns include
    )
    return [
        (f"{noun}.{name}", statement)
        for noun in nouns
        for name, statement in named_sql.load(dialect, noun).items()
    ]


# --- Postgres -----------------------------------------------------------------------------------------------


async def check_postgres(
    connection: Connection, name: str, statement: Statement, *, execute: bool = True
) -> list[Complaint]:
    """Return the complaints about a statement for all its sample arguments.

    Without `execute` the statement is only planned.
    """
    complaints: list[Complaint] = []
    await connection.execute(f"prepare checked as {statement.sql}")
    try:
        for arguments in argument_sets(statement):
            values = ", ".join(postgres_literal(arguments[name]) for name in statement.order)
            call = f"execute checked{f'({values})' if values else ''}"
            plan = await _explain(connection, call, execute=execute)
            complaints += [Complaint(name, problem, arguments) for problem in _problems(plan)]
    finally:
        await connection.execute("deallocate checked")
    return complaints


async def _explain(connection: Connection, call: str, *, execute: bool) -> dict[str, Any]:
    options = "analyze, timing off, format json" if execute else "format json"
    transaction = connection.transaction()
    await transaction.start()
    try:
        return json.loads(await connection.fetchval(f"explain ({options}) {call}"))[0]["Plan"]
    except asyncpg.IntegrityConstraintViolationError:
        if not execute:
            raise
    finally:
        await transaction.rollback()
    return await _explain(connection, call, execute=False)  # the sample rows cannot be stored


def _problems(node: dict[str, Any]) -> Iterator[str]:
    for child in node.get("Plans", []):
        yield from _problems(child)
    kind, table = node["Node Type"], node.get("Relation Name")
    if kind == "Seq Scan" and table not in BOUNDED_TABLES["postgres"]:
        yield f"scans {table}"
        return
    loops = node.get("Actual Loops", 0)
    if table and table not in BOUNDED_TABLES["postgres"] and "Scan" in kind:
        removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
        rows = loops * (node.get("Actual Rows", 0) + removed)
        if rows > MAX_ROWS_READ:
            condition = node.get("Index Cond") or node.get("Recheck Cond")
            yield (
                f"reads {rows:.0f} rows of {table} by {node.get('Index Name', kind)}"
                f" with condition {condition} and filter {node.get('Filter')}"
            )
    if kind in ("Sort", "Incremental Sort"):
        rows = sum(child.get("Actual Rows", 0) * child.get("Actual Loops", 0) for child in node["Plans"])
        if rows > MAX_ROWS_READ:
            yield f"sorts {rows:.0f} rows by {node['Sort Key']}"


# --- SQLite -------------------------------------------------------------------------------------------------


def check_sqlite(connection: sqlite3.Connection, name: str, statement: Statement) -> list[Complaint]:
    """Return the complaints about a statement for all its sample arguments."""
    partial_indexes = {
        row[0]
        for row in connection.execute(
            "select name from sqlite_schema where type = 'index' and sql like '% where %'"
        )
    }
    complaints: list[Complaint] = []
    for arguments in argument_sets(statement):
        values = {key: sqlite_value(value) for key, value in arguments.items()}
        plan = connection.execute(f"explain query plan {statement.sql}", values).fetchall()
        problems = [step[3] for step in plan if _is_full_scan(step[3], statement, partial_indexes)]
        steps, changes = _count_steps(connection, statement, values)
        if steps > MAX_SQLITE_STEPS + changes * MAX_SQLITE_STEPS_PER_CHANGE:
            problems.append(f"takes {steps} steps: {'; '.join(step[3] for step in plan)}")
        complaints += [Complaint(name, problem, arguments) for problem in problems]
    return complaints


def _is_full_scan(step: str, statement: Statement, partial_indexes: set[str]) -> bool:
    """Return whether a step of a plan reads a whole growing table or a whole index of it."""
    match = re.match(r"SCAN (\w+)(?: USING (?:COVERING )?INDEX (\w+))?", step)
    if match is None or match[2] in partial_indexes:
        return False
    # The plan has the alias of a table if there is one.
    table = re.search(rf"\b(?:from|join|update)\s+(\w+)(?:\s+as)?\s+{match[1]}\b", statement.sql)
    source = table[1] if table else match[1]
    return source not in BOUNDED_TABLES["sqlite"] and _is_table(source, statement)


def _is_table(name: str, statement: Statement) -> bool:
    """Return whether the name is one of a table, not of a subquery or a function such as `json_each`."""
    return re.search(rf"\b(?:from|join|update)\s+{name}\b(?!\s*\()", statement.sql) is not None


def _count_steps(
    connection: sqlite3.Connection, statement: Statement, values: dict[str, Any]
) -> tuple[int, int]:
    """Return the steps that the statement takes, and how many rows it changes."""
    calls, changed_before = 0, connection.total_changes

    def count() -> int:
        nonlocal calls
        calls += 1
        return 0

    connection.execute("begin")
    connection.set_progress_handler(count, _STEPS_PER_CALL)
    try:
        connection.execute(statement.sql, values).fetchall()
    except sqlite3.IntegrityError:  # the sample rows cannot be stored; the search for them is counted
        pass
    finally:
        connection.set_progress_handler(None, 0)
        connection.execute("rollback")
    return calls * _STEPS_PER_CALL, connection.total_changes - changed_before
