"""Purging deleted sessions and canvases from SQLite, in short transactions.

`sessions` and `canvases` mark what is deleted. A step deletes a bounded number of rows: events and messages
first, the marked row last, so that an interrupted purge is continued. The statements are in
`sql/sqlite/deletions.sql`.
"""

import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from easel.ids import CanvasId, SessionId, UserId
from easel.stores import named_sql

if TYPE_CHECKING:
    from easel.stores.sqlite.database import SqliteDatabase

SQL = named_sql.load("sqlite", "deletions")
MAX_PURGED_ROWS = 2_000  # per transaction, to bound the delay of other writes
MAX_PURGED_RUNS = 500  # per transaction

Ids = dict[str, str]
PurgeRows = Callable[[sqlite3.Connection, Ids], int]


class SqliteDeletions:
    def __init__(self, database: "SqliteDatabase") -> None:
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
        found = await self._database.read(lambda connection: _rows(connection, find, ids))
        if not found:  # the usual case does not occupy the writer
            return 0

        def work(connection: sqlite3.Connection) -> int:
            found = _rows(connection, find, ids)
            return purge_rows(connection, dict(found[0])) if found else 0

        return await self._database.write(work)


def _purge_session(connection: sqlite3.Connection, ids: Ids) -> int:
    runs = _rows(connection, "list_runs_to_purge", {**ids, "limit": MAX_PURGED_RUNS})
    if not runs:
        if deleted := _delete(connection, "purge_messages", ids):
            return deleted
        _rows(connection, "end_thread", ids)
        _rows(connection, "delete_session", ids)
        return 1
    run_ids = {"run_ids": msgspec.json.encode([row["run_id"] for row in runs]).decode()}
    for name in ("purge_events", "purge_boards", "purge_run_references"):
        if deleted := _delete(connection, name, run_ids):
            return deleted
    _rows(connection, "purge_runs", run_ids)
    return len(runs)


def _purge_canvas(connection: sqlite3.Connection, ids: Ids) -> int:
    for name in (
        "purge_canvas_events",
        "purge_executions",
        "purge_canvas_references",
        "purge_canvas_version_assets",
        "purge_canvas_versions",
        "purge_versions",
        "purge_drafts",
    ):
        if deleted := _delete(connection, name, ids):
            return deleted
    _rows(connection, "end_canvas", ids)
    _rows(connection, "delete_canvas", ids)
    return 1


def _delete(connection: sqlite3.Connection, name: str, arguments: dict[str, Any]) -> int:
    return connection.execute(SQL[name].sql, {**arguments, "limit": MAX_PURGED_ROWS}).rowcount


def _rows(connection: sqlite3.Connection, name: str, arguments: dict[str, Any]) -> list[Any]:
    return connection.execute(SQL[name].sql, arguments).fetchall()
