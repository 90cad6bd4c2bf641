"""Read-only inspection of a Postgres database over one connection."""

import asyncpg

from easel.stores.postgres.database import check_version, translate_connect_errors


async def inspect_postgres(url: str, *, timeout: float) -> tuple[int, bool]:
    """Return the schema version of a database (0 without a schema), and whether the database is read-only."""
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
            if not await opened.fetchval("select to_regclass('schema_migrations') is not null"):
                return 0, is_read_only
            return await opened.fetchval(
                "select coalesce(max(version), 0) from schema_migrations"
            ), is_read_only
        finally:
            opened.terminate()
