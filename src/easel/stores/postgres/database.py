"""Connections to Postgres: a small pool with timeouts.

Owns how connections are borrowed, returned and discarded. A transient failure (no server, no free connection,
a network timeout, a full disk) is raised as `Unavailable`; the next statement uses another connection.
"""

import contextlib
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import asyncpg

from easel.errors import BadInput, BadSettings, Unavailable
from easel.stores.named_sql import Statement
from easel.stores.nouns import NounStores
from easel.stores.postgres.migrator import apply_missing_migrations, find_missing, newest_applied
from easel.stores.postgres.statements import PostgresStatements

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from asyncpg.pool import PoolConnectionProxy

    from easel.stores.postgres.audit import PostgresAudit
    from easel.stores.postgres.boards import PostgresBoards
    from easel.stores.postgres.canvases import PostgresCanvases
    from easel.stores.postgres.documents import PostgresDocuments
    from easel.stores.postgres.notifier import PostgresNotifier
    from easel.stores.postgres.runs import PostgresRuns

    Connection = PoolConnectionProxy[asyncpg.Record]

OLDEST_SERVER = 15
# Classes of SQLSTATE codes for failures that the statement did not cause: connection, resources, operator
# intervention, system, rollback, internal error.
_TRANSIENT = ("08", "53", "57", "58", "40", "XX")
_READ_ONLY = "25006"
NO_TEXT = "The text has a character that cannot be stored, such as NUL."


def is_transient(problem: BaseException) -> bool:
    """Return whether a retry can succeed, because the server, the network or the disk failed."""
    if isinstance(problem, asyncpg.PostgresError):
        state = str(getattr(problem, "sqlstate", None) or "")
        return state[:2] in _TRANSIENT or state == _READ_ONLY
    return isinstance(problem, (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError))


@contextlib.contextmanager
def translate_connect_errors() -> "Generator[None]":
    """Raise `BadSettings` for a wrong URL or login, `Unavailable` for a server that does not respond."""
    try:
        yield
    except (
        ValueError,
        asyncpg.InvalidCatalogNameError,
        asyncpg.InvalidAuthorizationSpecificationError,
    ) as problem:
        raise BadSettings(
            problem=f"EASEL_DATABASE_URL must name a database that we can log in to: {problem}"
        ) from problem
    except Exception as problem:
        if is_transient(problem):
            raise Unavailable(what="The database") from problem
        raise


def check_version(server: int) -> None:
    if server < OLDEST_SERVER:
        raise BadSettings(problem=f"Easel needs Postgres {OLDEST_SERVER} or newer; this server is {server}.")


class PostgresDatabase(NounStores):
    """Provides the stores and the notifier."""

    runs: "PostgresRuns"
    canvases: "PostgresCanvases"
    documents: "PostgresDocuments"
    audit: "PostgresAudit"
    boards: "PostgresBoards"
    notifier: "PostgresNotifier"

    def __init__(self, url: str, pool: "asyncpg.Pool[asyncpg.Record]", timeout: float) -> None:
        super().__init__(partial(PostgresStatements, self))
        self.url = url
        self.timeout = timeout
        self._pool = pool

    @asynccontextmanager
    async def connection(self) -> "AsyncGenerator[Connection]":
        try:
            connection = await self._pool.acquire(timeout=self.timeout)
        except Exception as problem:
            if is_transient(problem):
                raise Unavailable(what="The database") from problem
            raise
        try:
            yield connection
        except asyncpg.CharacterNotInRepertoireError as problem:  # 22021
            raise BadInput(problem=NO_TEXT) from problem
        except Exception as problem:
            if not is_transient(problem):
                raise
            # Discard the connection: its server may be unreachable.
            with contextlib.suppress(asyncpg.InterfaceError):  # already discarded by the pool
                connection.terminate()
            raise Unavailable(what="The database") from problem
        finally:
            await self._release(connection)

    async def _release(self, connection: "Connection") -> None:
        """Return a connection to the pool, which closes it if it is broken.

        A transient failure is ignored: the statement has its result already.
        """
        try:
            await self._pool.release(connection, timeout=self.timeout)
        except Exception as problem:
            if not is_transient(problem):
                raise

    async def rows(self, statement: Statement, **arguments: Any) -> list[Any]:
        async with self.connection() as connection:
            return await connection.fetch(statement.sql, *statement.arguments(arguments))

    async def row(self, statement: Statement, **arguments: Any) -> Any:
        async with self.connection() as connection:
            return await connection.fetchrow(statement.sql, *statement.arguments(arguments))

    async def migrate(self) -> list[str]:
        """Apply the missing migrations, one instance at a time. Returns their names."""
        async with self.connection() as connection:
            return await apply_missing_migrations(connection)

    async def schema_version(self) -> int:
        async with self.connection() as connection:
            return await newest_applied(connection)

    async def is_migrated(self) -> bool:
        async with self.connection() as connection:
            return not await find_missing(connection)

    async def server_version(self) -> int:
        async with self.connection() as connection:
            return connection.get_server_version().major

    async def close(self) -> None:
        await self.notifier.close()
        await self.runs.close()
        await self.audit.close()
        self._pool.terminate()  # no write is pending
