"""The schema of a SQLite file: its version, and the application of missing migrations.

Knows no table except `schema_migrations`.
"""

import sqlite3
from collections.abc import Iterator
from typing import Any

from easel.stores import migrations
from easel.stores.migrations import Migration


def find_missing(connection: sqlite3.Connection) -> list[Migration]:
    """Return the migrations that the file lacks. Raises `BadSettings` if it has others."""
    return migrations.missing("sqlite", _read_ledger(connection))


def newest_applied(connection: sqlite3.Connection) -> int:
    """Return the version of the newest applied migration, 0 if there is no schema."""
    return max((row["version"] for row in _read_ledger(connection)), default=0)


def apply_missing_migrations(connection: sqlite3.Connection) -> list[str]:
    """Apply all missing migrations in the caller's transaction. Returns their names."""
    missing = find_missing(connection)
    connection.execute(migrations.CREATE_LEDGER)
    for migration in missing:
        for statement in _statements(migration.sql):
            connection.execute(statement)
        connection.execute(
            "insert into schema_migrations (version, name, checksum) values (?, ?, ?)",
            (migration.version, migration.name, migration.checksum),
        )
    return [migration.title for migration in missing]


def _read_ledger(connection: sqlite3.Connection) -> list[dict[str, Any]]:
    if not connection.execute("select 1 from sqlite_schema where name = 'schema_migrations'").fetchall():
        return []
    cursor = connection.execute("select * from schema_migrations")
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _statements(script: str) -> Iterator[str]:
    """Split a script into statements. `executescript` is not used: it would commit the open transaction."""
    statement = ""
    for piece in script.split(";")[:-1]:
        statement += piece + ";"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
