"""References to artifacts in SQLite. The rules are in the statements of `sql/sqlite/references.sql`."""

import sqlite3
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import msgspec

from easel.core.canvas.retention import LogKey, OldLogs
from easel.core.stream.json_text import to_json
from easel.core.stream.references import PrunedRuns, ReleaseDecision, RunContent, decide_release
from easel.ids import ArtifactId, CanvasId, RunId, UserId
from easel.stores import named_sql
from easel.stores.rows.canvases import to_old_logs
from easel.stores.rows.references import to_positions, to_pruned_runs, to_run_content

if TYPE_CHECKING:
    from easel.stores.sqlite.database import SqliteDatabase

SQL = named_sql.load("sqlite", "references")


class SqliteReferences:
    def __init__(self, database: "SqliteDatabase") -> None:
        self._database = database

    async def find_pruned_runs(self, after: RunId, limit: int) -> PrunedRuns:
        return to_pruned_runs(await self._read("find_pruned_runs", after=after, limit=limit), limit)

    async def read_run(self, run_id: RunId) -> RunContent | None:
        runs = await self._read("run_references", run_id=run_id)
        if not runs:
            return None
        texts = await self._read("run_mentions", run_id=run_id)
        return to_run_content(runs[0], msgspec.json.decode(runs[0]["artifact_ids"]), texts)

    async def release_run(self, run_id: RunId, kept: Collection[ArtifactId], limit: int) -> int:
        names = to_json(list(kept))

        def work(connection: sqlite3.Connection) -> int:
            released = len(
                _rows(connection, "release_run_references", run_id=run_id, kept=names, limit=limit)
            )
            if released < limit:
                _rows(connection, "confirm_run_references", run_id=run_id)
            return released

        return await self._database.write(work)

    async def find_releasable(self, after: LogKey, limit: int) -> OldLogs:
        user_id, canvas_id = after
        rows = await self._read("find_releasable", user_id=user_id, canvas_id=canvas_id, limit=limit)
        return to_old_logs(rows, limit)

    async def release_canvas(self, user_id: UserId, canvas_id: CanvasId, limit: int) -> ReleaseDecision:
        ids = {"user_id": user_id, "canvas_id": canvas_id}

        def work(connection: sqlite3.Connection) -> ReleaseDecision:
            positions = to_positions(_rows(connection, "canvas_references", limit=limit, **ids))
            content = _rows(connection, "canvas_content", **ids) if positions else []
            if not content:
                return ReleaseDecision((), ())
            versions = [row["spec"] for row in _rows(connection, "version_specs", **ids)]
            decision = decide_release(positions, content[0]["state"], content[0]["spec"], *versions)
            _rows(connection, "release_canvas_references", released=to_json(decision.released), **ids)
            _rows(connection, "confirm_canvas_references", kept=to_json(decision.kept), **ids)
            return decision

        return await self._database.write(work)

    async def _read(self, name: str, **arguments: Any) -> list[Any]:
        return await self._database.read(lambda connection: _rows(connection, name, **arguments))


def _rows(connection: sqlite3.Connection, name: str, **arguments: Any) -> list[Any]:
    return connection.execute(SQL[name].sql, arguments).fetchall()
