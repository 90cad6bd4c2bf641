"""A look at a Postgres database by somebody who changes nothing: over one connection, by questions alone."""

import asyncpg

from easel.errors import BadSettings, Unavailable
from easel.stores.postgres import OLDEST_SERVER
from easel.stores.postgres.database import is_passing


async def look(url: str, *, timeout: float) -> tuple[int, bool]:
    """The version of its schema (0: it has none), and whether it takes no writes."""
    try:
        opened = await asyncpg.connect(url, timeout=timeout, command_timeout=timeout, server_settings={"application_name": "easel doctor"})
        try:
            if (version := opened.get_server_version().major) < OLDEST_SERVER:
                raise BadSettings(problem=f"Easel needs Postgres {OLDEST_SERVER} or newer; this server is {version}.")
            is_read_only = await opened.fetchval("select pg_is_in_recovery() or current_setting('transaction_read_only')::bool")
            if not await opened.fetchval("select to_regclass('schema_migrations') is not null"):
                return 0, is_read_only
            return await opened.fetchval("select coalesce(max(version), 0) from schema_migrations"), is_read_only
        finally:
            opened.terminate()
    except (ValueError, asyncpg.InvalidCatalogNameError, asyncpg.InvalidAuthorizationSpecificationError) as problem:
        raise BadSettings(problem=f"EASEL_DATABASE_URL does not lead to a database: {problem}.") from problem
    except Exception as problem:
        if is_passing(problem):
            raise Unavailable(what="The database") from problem
        raise
