"""The schema of a SQLite file: its version, and the application of missing migrations.

Knows no table except `schema_migrations`.
"""

import sqlite3
from collections.abc import Iterator

from easel.stores import migrations


def apply_missing_migrations(connection: sqlite3.Connection) -> list[str]:
    """Apply all missing migrations in the caller's transaction. Returns their names."""
    connection.execute(migrations.CREATE_LEDGER)
    applied = {
        row["version"] for row in connection.execute("select version from schema_migrations").fetchall()
    }
    missing = migrations.missing("sqlite", applied)
    for migration in missing:
        for statement in _statements(migration.sql):
            connection.execute(statement)
        connection.execute(
            "insert into schema_migrations (version, name) values (?, ?)", (migration.version, migration.name)
        )
    return [f"{migration.version:04} {migration.name}" for migration in missing]


def _statements(script: str) -> Iterator[str]:
    """Split a script into statements. `executescript` is not used: it would commit the open transaction."""
    statement = ""
    for piece in script.split(";")[:-1]:
        statement += piece + ";"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def newest_applied(connection: sqlite3.Connection) -> int:
    """Return the version of the newest applied migration, 0 if there is no schema."""
    if not connection.execute("select 1 from sqlite_schema where name = 'schema_migrations'").fetchall():
        return 0
    return connection.execute("select coalesce(max(version), 0) from schema_migrations").fetchall()[0][0]
