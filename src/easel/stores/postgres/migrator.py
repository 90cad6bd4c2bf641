"""Migrations of a Postgres database, by one instance at a time and beside the statements of the others.

Owns the lock between instances and the retries. A migration is one transaction with a short `lock_timeout`,
so that a statement that waits behind it never waits long.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from itertools import count
from typing import TYPE_CHECKING, Any

import asyncpg
import structlog

from easel.errors import Unavailable
from easel.stores import migrations
from easel.stores.migrations import Migration

if TYPE_CHECKING:
    from easel.stores.postgres.database import Connection

    AnyConnection = Connection | asyncpg.Connection[asyncpg.Record]

log = structlog.get_logger("migrations")

MIGRATION_LOCK = 0x45A5E1  # key of the advisory lock: an arbitrary number, the same for all instances
POLL_SECONDS = 0.2
# How long an instance waits for the migrations of another; and how long one migration may take.
MAX_WAIT_SECONDS = 3600.0
MAX_STATEMENT_SECONDS = 3600.0
# A statement that waits for a table lock delays all later statements on that table, so it gives up soon and
# is retried, at longer and longer intervals.
LOCK_TIMEOUT_SECONDS = 0.5
# Autovacuum gives up its lock only if a statement has waited for `deadlock_timeout` (1 s by default), so one
# of so many attempts waits for that long in addition.
PATIENT_EVERY = 4
MIN_RETRY_SECONDS, MAX_RETRY_SECONDS = 0.25, 5.0
MAX_LOCK_SECONDS = 300.0  # for all attempts of one migration

_SET_LOCK_TIMEOUT = """
select set_config('lock_timeout', ($1::int + case when $2::bool then setting::int else 0 end)::text, true)
  from pg_settings where name = 'deadlock_timeout'"""  # in milliseconds


async def apply_missing_migrations(connection: "Connection") -> list[str]:
    """Apply the missing migrations, one instance at a time. Returns their names.

    Raises `Unavailable` if another instance migrates, or a lock is held, for too long.
    """
    async with _migration_lock(connection):
        missing = await find_missing(connection)
        await connection.execute(migrations.CREATE_LEDGER)
        for migration in missing:
            await _retry_while_locked(
                migration, lambda patient, m=migration: _apply(connection, m, is_patient=patient)
            )
    return [migration.title for migration in missing]


async def find_missing(connection: "AnyConnection") -> list[Migration]:
    """Return the migrations that the database lacks. Raises `BadSettings` if it has others."""
    return migrations.missing("postgres", await _read_ledger(connection))


async def newest_applied(connection: "AnyConnection") -> int:
    """Return the version of the newest applied migration, 0 if there is no schema."""
    return max((row["version"] for row in await _read_ledger(connection)), default=0)


async def _read_ledger(connection: "AnyConnection") -> list[dict[str, Any]]:
    if not await connection.fetchval("select to_regclass('schema_migrations') is not null"):
        return []
    return [dict(row) for row in await connection.fetch("select * from schema_migrations")]


@contextlib.asynccontextmanager
async def _migration_lock(connection: "Connection") -> AsyncGenerator[None]:
    """Hold the advisory lock of this connection. Poll for it, so that the wait ends."""
    now = asyncio.get_running_loop().time
    deadline = now() + MAX_WAIT_SECONDS
    while not await connection.fetchval("select pg_try_advisory_lock($1)", MIGRATION_LOCK):
        if now() >= deadline:
            raise Unavailable(what="The database, which another instance migrates,")
        await asyncio.sleep(POLL_SECONDS)
    try:
        yield
    finally:
        if not connection.is_closed():  # the lock ends with its connection
            await connection.execute("select pg_advisory_unlock($1)", MIGRATION_LOCK)


async def _retry_while_locked(migration: Migration, apply: Callable[[bool], Awaitable[None]]) -> None:
    now = asyncio.get_running_loop().time
    deadline, pause_seconds = now() + MAX_LOCK_SECONDS, MIN_RETRY_SECONDS
    for attempt in count(1):
        try:
            await apply(attempt % PATIENT_EVERY == 0)
        except asyncpg.LockNotAvailableError as problem:
            if now() >= deadline:
                raise Unavailable(what=f"A table that migration {migration.version:04} changes") from problem
            log.warning("migration.locked", migration=migration.name, problem=str(problem))
        else:
            return
        await asyncio.sleep(pause_seconds)
        pause_seconds = min(2 * pause_seconds, MAX_RETRY_SECONDS)


async def _apply(connection: "Connection", migration: Migration, *, is_patient: bool) -> None:
    async with connection.transaction():
        await connection.execute(_SET_LOCK_TIMEOUT, round(LOCK_TIMEOUT_SECONDS * 1000), is_patient)
        await connection.execute(migration.sql, timeout=MAX_STATEMENT_SECONDS)
        await connection.execute(
            "insert into schema_migrations (version, name, checksum) values ($1, $2, $3)",
            migration.version,
            migration.name,
            migration.checksum,
        )
