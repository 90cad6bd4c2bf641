"""References to artifacts. The rules are in the statements of `references.sql`."""

from collections.abc import Collection, Mapping

import msgspec

from easel.core.canvas.retention import LogKey, OldLogs
from easel.core.stream.references import PrunedRuns, ReleaseDecision, RunContent, decide_release
from easel.ids import AccountId, ArtifactId, CanvasId, RunId
from easel.stores.nouns.statements import Statements, Steps
from easel.stores.rows.canvases import to_old_logs


class SqlReferences:
    def __init__(self, statements: Statements) -> None:
        self._sql = statements

    async def find_pruned_runs(self, after: RunId, limit: int) -> PrunedRuns:
        rows = await self._sql.rows("find_pruned_runs", after=after, limit=limit)
        is_last = sum(row["refs"] for row in rows) < limit
        return PrunedRuns(
            [RunId(row["run_id"]) for row in rows if row["is_unchecked"]],
            None if is_last else RunId(rows[-1]["run_id"]),
        )

    async def read_run(self, run_id: RunId) -> RunContent | None:
        run = await self._sql.row("run_references", run_id=run_id)
        if run is None:
            return None
        texts = await self._sql.rows("run_mentions", run_id=run_id)
        return RunContent(
            AccountId(run["account_id"]),
            frozenset(map(ArtifactId, msgspec.json.decode(run["artifact_ids"]))),
            [row["text"] for row in texts],
        )

    async def release_run(self, run_id: RunId, kept: Collection[ArtifactId], limit: int) -> int:
        released = await self._sql.rows("release_run_references", run_id=run_id, kept=list(kept), limit=limit)
        if len(released) < limit:
            await self._sql.rows("confirm_run_references", run_id=run_id)
        return len(released)

    async def find_releasable(self, after: LogKey, limit: int) -> OldLogs:
        account_id, canvas_id = after
        rows = await self._sql.rows(
            "find_releasable", account_id=account_id, canvas_id=canvas_id, limit=limit
        )
        return to_old_logs(rows, limit)

    async def release_canvas(self, account_id: AccountId, canvas_id: CanvasId, limit: int) -> ReleaseDecision:
        return await self._sql.transaction(
            _release_canvas({"account_id": account_id, "canvas_id": canvas_id}, limit)
        )


def _release_canvas(ids: Mapping[str, str], limit: int) -> Steps[ReleaseDecision]:
    yield "lock_canvas", ids
    rows = yield "canvas_references", {**ids, "limit": limit}
    positions = {ArtifactId(row["artifact_id"]): row["mentioned_seq"] for row in rows}
    content = (yield "canvas_content", ids) if positions else []
    if not content:
        return ReleaseDecision((), ())
    versions = yield "version_specs", ids
    decision = decide_release(
        positions, content[0]["state"], content[0]["spec"], *(row["spec"] for row in versions)
    )
    yield "release_canvas_references", {**ids, "released": list(decision.released)}
    yield "confirm_canvas_references", {**ids, "kept": list(decision.kept)}
    return decision
