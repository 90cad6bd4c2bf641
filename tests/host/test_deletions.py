"""The purge of deleted sessions and canvases: step by step until nothing is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from easel.host.deletions import DeletionPurge
from easel.host.metrics import ROWS_PURGED
from easel.stores.blobs.store import open_blobs

if TYPE_CHECKING:
    from pathlib import Path

    from easel.ids import AccountId


class ScriptedDeletions:
    """A store whose steps delete these numbers of rows, one after the other."""

    def __init__(self, sessions: list[int], canvases: list[int]) -> None:
        self.sessions, self.canvases = sessions, canvases

    async def purge_session(self) -> int:
        return self.sessions.pop(0) if self.sessions else 0

    async def purge_canvas(self) -> int:
        return self.canvases.pop(0) if self.canvases else 0

    async def list_accounts(self) -> list[AccountId]:
        return []

    async def purge_account(self, account_id: AccountId) -> int:
        raise AssertionError(account_id)


def purged(kind: str) -> float:
    return ROWS_PURGED.labels(kind)._value.get()


async def test_purge_repeats_its_steps_until_nothing_is_left_and_counts_the_rows(tmp_path: Path) -> None:
    blobs = open_blobs(str(tmp_path))
    deletions = ScriptedDeletions([5000, 120, 1], [7])
    before = purged("session"), purged("canvas")
    assert await DeletionPurge(deletions, blobs).once() == 5128
    assert (deletions.sessions, deletions.canvases) == ([], [])
    assert (purged("session") - before[0], purged("canvas") - before[1]) == (5121, 7)
    assert await DeletionPurge(deletions, blobs).once() == 0
