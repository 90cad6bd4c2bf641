"""Release of references to artifacts, after retention has shortened the logs that mentioned them.

Owns the pass over all runs and canvases. A reference is released when it is certain that nothing mentions its
artifact: for a run, its remaining content is read; for a canvas, the store compares state and spec while the
canvas is locked. The sweep then deletes artifacts without references. Does not know stores.
"""

import structlog

from easel.core.canvas.retention import START
from easel.core.stream.marker import mentioned_artifacts
from easel.core.stream.references import RUNS_START, RunContent
from easel.errors import CorruptData, NotFound, Unavailable
from easel.host.periodic import SweepProgress
from easel.host.ports import ArtifactAccess, ReferenceStore
from easel.ids import AccountId, ArtifactId, CanvasId, RunId

# References, and canvases, that are checked in one statement; references released in one transaction.
BATCH_SIZE = 200

log = structlog.get_logger("references")


class ReferenceRelease:
    def __init__(self, references: ReferenceStore, artifacts: ArtifactAccess) -> None:
        self._references = references
        self._artifacts = artifacts

    async def once(self) -> int:
        """Release the references of all pruned runs and of all canvases. Returns how many were released."""
        state = SweepProgress()
        try:
            await self._release_runs(state)
            await self._release_canvases(state)
        except Unavailable as problem:
            state.problem = problem
        if state.count:
            log.info("references.released", count=state.count)
        if state.problem is not None:
            log.warning("references.release_incomplete", problem=str(state.problem))
        return state.count

    async def _release_runs(self, state: SweepProgress) -> None:
        position = RUNS_START
        while position is not None:
            page = await self._references.find_pruned_runs(position, BATCH_SIZE)
            for run_id in page.run_ids:
                await state.add(self._release_run(run_id))
            position = page.next

    async def _release_canvases(self, state: SweepProgress) -> None:
        position = START
        while position is not None:
            page = await self._references.find_releasable(position, BATCH_SIZE)
            for key in page.keys:
                await state.add(self._release_canvas(*key))
            position = page.next

    async def _release_run(self, run_id: RunId) -> int:
        content = await self._references.read_run(run_id)
        if content is None:
            return 0
        kept = content.mentioned
        if content.references - kept:
            kept |= await self._mentioned_inside(content)
        released = count = await self._references.release_run(run_id, kept, BATCH_SIZE)
        while count == BATCH_SIZE:
            count = await self._references.release_run(run_id, kept, BATCH_SIZE)
            released += count
        return released

    async def _mentioned_inside(self, content: RunContent) -> frozenset[ArtifactId]:
        """Return the artifacts that the offloaded values of a run name; all, if one cannot be read."""
        found = frozenset[ArtifactId]()
        for artifact_id in content.offloaded:
            try:
                value = await self._artifacts.read(content.account_id, artifact_id)
            except (NotFound, CorruptData):
                return content.references
            found |= mentioned_artifacts(value.decode(errors="replace"))
        return found

    async def _release_canvas(self, account_id: AccountId, canvas_id: CanvasId) -> int:
        released, checked = 0, BATCH_SIZE
        while checked >= BATCH_SIZE:
            decision = await self._references.release_canvas(account_id, canvas_id, BATCH_SIZE)
            released += len(decision.released)
            checked = len(decision.released) + len(decision.kept)
        return released
