"""Connections to Postgres: a small pool that never hangs, and migrations under a lock.

Owns how connections are made, lent and given up. Whatever keeps a statement from being answered (no server, no free
connection, a silent network, a full disk) becomes `Unavailable`; the next statement tries anew.
"""

import contextlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg

from easel.errors import BadSettings, Unavailable
from easel.stores import migrations
from easel.stores.named_sql import Statement

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from asyncpg.pool import PoolConnectionProxy

    from easel.stores.postgres.artifacts import PostgresArtifacts
    from easel.stores.postgres.audit import PostgresAudit
    from easel.stores.postgres.boards import PostgresBoards
    from easel.stores.postgres.canvas_actions import PostgresCanvasActions
    from easel.stores.postgres.canvases import PostgresCanvases
    from easel.stores.postgres.nodes import PostgresNodes
    from easel.stores.postgres.notifier import PostgresNotifier
    from easel.stores.postgres.runs import PostgresRuns
    from easel.stores.postgres.sessions import PostgresSessions
    from easel.stores.postgres.sign_ins import PostgresSignIns
    from easel.stores.postgres.tokens import PostgresTokens

    Connection = PoolConnectionProxy[asyncpg.Record]

OLDEST_SERVER = 15
MIGRATION_LOCK = 0x45A5E1  # any number, as long as every instance uses the same
# Groups of SQLSTATE codes that say "not now" rather than "not so": connection, resources, operator, system, rollback.
_PASSING = ("08", "53", "57", "58", "40", "XX")
_READ_ONLY = "25006"


def is_transient(problem: BaseException) -> bool:
    """Whether trying again later can help: the server, the network or the disk, not the statement."""
    if isinstance(problem, asyncpg.PostgresError):
        state = str(getattr(problem, "sqlstate", None) or "")
        return state[:2] in _PASSING or state == _READ_ONLY
    return isinstance(problem, (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError))


@contextlib.contextmanager
def translate_connect_errors() -> "Generator[None]":
    """What keeps a server from being reached, as our own: a wrong address has to be corrected, all else may pass."""
    try:
        yield
    except (
        ValueError,
        asyncpg.InvalidCatalogNameError,
        asyncpg.InvalidAuthorizationSpecificationError,
    ) as problem:
        raise BadSettings(problem=f"EASEL_DATABASE_URL does not lead to a database: {problem}") from problem
    except Exception as problem:
        if is_transient(problem):
            raise Unavailable(what="The database") from problem
        raise


def check_version(server: int) -> None:
    if server < OLDEST_SERVER:
        raise BadSettings(problem=f"Easel needs Postgres {OLDEST_SERVER} or newer; this server is {server}.")


class PostgresDatabase:
    """`runs` and `bell` are the ports it fulfils; the rest is how."""

    runs: "PostgresRuns"
    sessions: "PostgresSessions"
    canvases: "PostgresCanvases"
    canvas_actions: "PostgresCanvasActions"
    audit: "PostgresAudit"
    artifacts: "PostgresArtifacts"
    boards: "PostgresBoards"
    nodes: "PostgresNodes"
    tokens: "PostgresTokens"
    sign_ins: "PostgresSignIns"
    notifier: "PostgresNotifier"

    def __init__(self, url: str, pool: "asyncpg.Pool[asyncpg.Record]", timeout: float) -> None:
        self.url = url
        self.timeout = timeout
        self._pool = pool

    @asynccontextmanager
    async def connection(self) -> "AsyncGenerator[Connection]":
        try:
            lent = await self._pool.acquire(timeout=self.timeout)
        except Exception as problem:
            if is_transient(problem):
                raise Unavailable(what="The database") from problem
            raise
        try:
            yield lent
        except Exception as problem:
            if not is_transient(problem):
                raise
            # A connection that was silent or broken once is not lent again: its server may be gone without a word.
            with contextlib.suppress(asyncpg.InterfaceError):  # it was found dead and taken back already
                lent.terminate()
            raise Unavailable(what="The database") from problem
        finally:
            await self._give_back(lent)

    async def _give_back(self, lent: "Connection") -> None:
        """One that breaks meanwhile is closed by the pool, and no more: what was asked of it has been answered."""
        try:
            await self._pool.release(lent, timeout=self.timeout)
        except Exception as problem:
            if not is_transient(problem):
                raise

    async def rows(self, statement: Statement, **given: Any) -> list[Any]:
        async with self.connection() as lent:
            return await lent.fetch(statement.sql, *statement.arguments(given))

    async def row(self, statement: Statement, **given: Any) -> Any:
        async with self.connection() as lent:
            return await lent.fetchrow(statement.sql, *statement.arguments(given))

    async def migrate(self) -> list[str]:
        """Apply what is missing, one instance at a time; the names of what was applied."""
        async with self.connection() as lent:
            await lent.execute("select pg_advisory_lock($1)", MIGRATION_LOCK, timeout=120)
            try:
                await lent.execute(migrations.CREATE_LEDGER)
                applied = {
                    row["version"] for row in await lent.fetch("select version from schema_migrations")
                }
                missing = migrations.missing("postgres", applied)
                for migration in missing:
                    async with lent.transaction():
                        await lent.execute(migration.sql, timeout=600)
                        await lent.execute(
                            "insert into schema_migrations (version, name) values ($1, $2)",
                            migration.version,
                            migration.name,
                        )
            finally:
                await lent.execute("select pg_advisory_unlock($1)", MIGRATION_LOCK)
        return [f"{migration.version:04} {migration.name}" for migration in missing]

    async def schema_version(self) -> int:
        async with self.connection() as lent:
            if not await lent.fetchval("select to_regclass('schema_migrations') is not null"):
                return 0
            return await lent.fetchval("select coalesce(max(version), 0) from schema_migrations")

    async def server_version(self) -> int:
        async with self.connection() as lent:
            return lent.get_server_version().major

    async def close(self) -> None:
        await self.notifier.close()
        await self.runs.close()
        await self.audit.close()
        self._pool.terminate()  # everything that had to be written was awaited by whoever wrote it
