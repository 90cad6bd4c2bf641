"""Read-only inspection of a Postgres database over one connection."""

import asyncpg

from easel.stores.postgres.database import check_version, translate_connect_errors
from easel.stores.postgres.migrator import find_missing, newest_applied


async def inspect_postgres(url: str, *, timeout: float) -> tuple[int, bool]:
    """Return the schema version of a database (0 without a schema), and whether the database is read-only.

    Raises `BadSettings` if it cannot be read, or if another development version wrote it.
    """
    with translate_connect_errors():
        opened = await asyncpg.connect(
            url,
            timeout=timeout,
            command_timeout=timeout,
            server_settings={"application_name": "easel doctor"},
        )
        try:
            check_version(opened.get_server_version().major)
            is_read_only = await opened.fetchval(
                "select pg_is_in_recovery() or current_setting('transaction_read_only')::bool"
            )
            await find_missing(opened)
            return await newest_applied(opened), is_read_only
        finally:
            opened.terminate()
