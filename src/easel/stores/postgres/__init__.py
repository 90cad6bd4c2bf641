"""The Postgres store, for one or more processes. Needs Postgres 15 or newer."""

from typing import Any

import asyncpg

from easel.core.canvas import versions
from easel.stores.postgres.audit import PostgresAudit
from easel.stores.postgres.boards import PostgresBoards
from easel.stores.postgres.canvases import PostgresCanvases
from easel.stores.postgres.database import PostgresDatabase, check_version, translate_connect_errors
from easel.stores.postgres.documents import PostgresDocuments
from easel.stores.postgres.notifier import PostgresNotifier
from easel.stores.postgres.orders import PostgresOrders
from easel.stores.postgres.runs import PostgresRuns
from easel.stores.rows.documents import DEFAULT_MAX_VERSIONS

__all__ = ["PostgresDatabase", "open_postgres"]

MIN_CONNECTIONS = 4  # opened at start: enough for a claim, two appends and a read at the same time
# Every statement has one good plan, which uses an index. These settings make Postgres plan a statement once,
# and prefer the index even if the table is small or was never analysed.
PLANNER_SETTINGS = {"plan_cache_mode": "force_generic_plan", "random_page_cost": "1.1", "jit": "off"}


async def _skip_reset(_: "asyncpg.connection.Connection[asyncpg.Record]") -> None:
    """Do nothing: no statement changes the state of a connection, and a reset would cost a round trip."""


async def open_postgres(
    url: str,
    *,
    pool: int = 8,
    timeout: float = 8.0,
    max_document_versions: int = DEFAULT_MAX_VERSIONS,
    max_canvas_versions: int = versions.DEFAULT_MAX_VERSIONS,
    max_account_runs: int = 0,
) -> PostgresDatabase:
    options: dict[str, Any] = {
        "dsn": url,
        "timeout": timeout,
        "server_settings": {
            "application_name": "easel",
            "idle_in_transaction_session_timeout": str(int(timeout * 1000)),
            **PLANNER_SETTINGS,
        },
    }
    with translate_connect_errors():
        connections = await asyncpg.create_pool(
            min_size=min(MIN_CONNECTIONS, pool),
            max_size=pool,
            command_timeout=timeout,
            reset=_skip_reset,
            **options,
        )
    database = PostgresDatabase(url, connections, timeout)
    check_version(await database.server_version())
    database.runs = PostgresRuns(database, max_account_runs)
    database.canvases = PostgresCanvases(database, max_canvas_versions)
    database.documents = PostgresDocuments(database, max_document_versions)
    database.audit = PostgresAudit(database)
    database.boards = PostgresBoards(database)
    database.orders = PostgresOrders(database)
    database.notifier = PostgresNotifier(options, timeout)
    return database
