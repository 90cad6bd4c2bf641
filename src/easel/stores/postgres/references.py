"""References to artifacts in Postgres. The rules are in the statements of `sql/postgres/references.sql`."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from easel.core.canvas.retention import LogKey, OldLogs
from easel.core.stream.references import PrunedRuns, ReleaseDecision, RunContent, decide_release
from easel.ids import ArtifactId, CanvasId, RunId, UserId
from easel.stores import named_sql
from easel.stores.rows.canvases import to_old_logs
from easel.stores.rows.references import to_positions, to_pruned_runs, to_run_content

if TYPE_CHECKING:
    from easel.stores.postgres.database import Connection, PostgresDatabase

SQL = named_sql.load("postgres", "references")


class PostgresReferences:
    def __init__(self, database: "PostgresDatabase") -> None:
        self._database = database

    async def find_pruned_runs(self, after: RunId, limit: int) -> PrunedRuns:
        rows = await self._database.rows(SQL["find_pruned_runs"], after=after, limit=limit)
        return to_pruned_runs(rows, limit)

    async def read_run(self, run_id: RunId) -> RunContent | None:
        run = await self._database.row(SQL["run_references"], run_id=run_id)
        if run is None:
            return None
        texts = await self._database.rows(SQL["run_mentions"], run_id=run_id)
        return to_run_content(run, run["artifact_ids"], texts)

    async def release_run(self, run_id: RunId, kept: Collection[ArtifactId], limit: int) -> int:
        released = await self._database.rows(
            SQL["release_run_references"], run_id=run_id, kept=list(kept), limit=limit
        )
        if len(released) < limit:
            await self._database.rows(SQL["confirm_run_references"], run_id=run_id)
        return len(released)

    async def find_releasable(self, after: LogKey, limit: int) -> OldLogs:
        user_id, canvas_id = after
        rows = await self._database.rows(
            SQL["find_releasable"], user_id=user_id, canvas_id=canvas_id, limit=limit
        )
        return to_old_logs(rows, limit)

    async def release_canvas(self, user_id: UserId, canvas_id: CanvasId, limit: int) -> ReleaseDecision:
        ids = {"user_id": user_id, "canvas_id": canvas_id}
        async with self._database.connection() as connection, connection.transaction():
            await _fetch(connection, "lock_canvas", ids)
            positions = to_positions(await _fetch(connection, "canvas_references", {**ids, "limit": limit}))
            content = await _fetch(connection, "canvas_content", ids) if positions else []
            if not content:
                return ReleaseDecision((), ())
            versions = [row["spec"] for row in await _fetch(connection, "version_specs", ids)]
            decision = decide_release(positions, content[0]["state"], content[0]["spec"], *versions)
            released, kept = list(decision.released), list(decision.kept)
            await _fetch(connection, "release_canvas_references", {**ids, "released": released})
            await _fetch(connection, "confirm_canvas_references", {**ids, "kept": kept})
        return decision


async def _fetch(connection: "Connection", name: str, arguments: dict[str, Any]) -> list[Any]:
    return await connection.fetch(SQL[name].sql, *SQL[name].arguments(arguments))
