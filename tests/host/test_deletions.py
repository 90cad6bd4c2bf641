"""The purge of deleted sessions and canvases: step by step until nothing is left."""

from __future__ import annotations

from easel.host.deletions import DeletionPurge
from easel.host.metrics import ROWS_PURGED


class ScriptedDeletions:
    """A store whose steps delete these numbers of rows, one after the other."""

    def __init__(self, sessions: list[int], canvases: list[int]) -> None:
        self.sessions, self.canvases = sessions, canvases

    async def purge_session(self) -> int:
        return self.sessions.pop(0) if self.sessions else 0

    async def purge_canvas(self) -> int:
        return self.canvases.pop(0) if self.canvases else 0


def purged(kind: str) -> float:
    return ROWS_PURGED.labels(kind)._value.get()


async def test_purge_repeats_its_steps_until_nothing_is_left_and_counts_the_rows() -> None:
    deletions = ScriptedDeletions([5000, 120, 1], [7])
    before = purged("session"), purged("canvas")
    assert await DeletionPurge(deletions).once() == 5128
    assert (deletions.sessions, deletions.canvases) == ([], [])
    assert (purged("session") - before[0], purged("canvas") - before[1]) == (5121, 7)
    assert await DeletionPurge(deletions).once() == 0
