"""Purging deleted sessions and canvases from Postgres, in short transactions.

`sessions` and `canvases` mark what is deleted. A step deletes a bounded number of rows: events and messages
first, the marked row last, so that an interrupted purge is continued. The statements are in
`sql/postgres/deletions.sql`.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from easel.ids import CanvasId, SessionId, UserId
from easel.stores import named_sql

if TYPE_CHECKING:
    from easel.stores.postgres.database import Connection, PostgresDatabase

SQL = named_sql.load("postgres", "deletions")
MAX_PURGED_ROWS = 5_000  # per transaction
MAX_PURGED_RUNS = 500  # per transaction

Ids = dict[str, str]
PurgeRows = Callable[["Connection", Ids], Awaitable[int]]


class PostgresDeletions:
    def __init__(self, database: "PostgresDatabase") -> None:
        self._database = database

    async def purge_session(self) -> int:
        return await self._purge("next_deleted_session", {}, _purge_session)

    async def purge_canvas(self) -> int:
        return await self._purge("next_deleted_canvas", {}, _purge_canvas)

    async def finish_session(self, user_id: UserId, session_id: SessionId) -> None:
        """Purge the rest of a deleted session, if there is one of this id."""
        await self._finish(
            "find_deleted_session", {"user_id": user_id, "session_id": session_id}, _purge_session
        )

    async def finish_canvas(self, user_id: UserId, canvas_id: CanvasId) -> None:
        """Purge the rest of a deleted canvas, if there is one of this id."""
        await self._finish("find_deleted_canvas", {"user_id": user_id, "canvas_id": canvas_id}, _purge_canvas)

    async def _finish(self, find: str, ids: Ids, purge_rows: PurgeRows) -> None:
        while await self._purge(find, ids, purge_rows):
            pass

    async def _purge(self, find: str, ids: Ids, purge_rows: PurgeRows) -> int:
        """Do one step for the session or canvas that `find` returns. Returns how many rows were deleted."""
        async with self._database.connection() as connection, connection.transaction():
            found = await _fetch(connection, find, ids)
            return await purge_rows(connection, dict(found[0])) if found else 0


async def _purge_session(connection: "Connection", ids: Ids) -> int:
    runs = await _fetch(connection, "list_runs_to_purge", {**ids, "limit": MAX_PURGED_RUNS})
    if not runs:
        if deleted := await _delete(connection, "purge_messages", ids):
            return deleted
        await _fetch(connection, "end_thread", ids)
        await _fetch(connection, "delete_session", ids)
        return 1
    run_ids = {"run_ids": [row["run_id"] for row in runs]}
    for name in ("purge_events", "purge_boards", "purge_run_references"):
        if deleted := await _delete(connection, name, run_ids):
            return deleted
    await _fetch(connection, "purge_runs", run_ids)
    return len(runs)


async def _purge_canvas(connection: "Connection", ids: Ids) -> int:
    for name in (
        "purge_canvas_events",
        "purge_executions",
        "purge_canvas_references",
        "purge_canvas_version_assets",
        "purge_canvas_versions",
        "purge_versions",
        "purge_drafts",
    ):
        if deleted := await _delete(connection, name, ids):
            return deleted
    await _fetch(connection, "end_canvas", ids)
    await _fetch(connection, "delete_canvas", ids)
    return 1


async def _delete(connection: "Connection", name: str, arguments: dict[str, Any]) -> int:
    [row] = await _fetch(connection, name, {**arguments, "limit": MAX_PURGED_ROWS})
    return row["count"]


async def _fetch(connection: "Connection", name: str, arguments: dict[str, Any]) -> list[Any]:
    return await connection.fetch(SQL[name].sql, *SQL[name].arguments(arguments))
