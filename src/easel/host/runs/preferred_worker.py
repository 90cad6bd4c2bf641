"""The delay before a worker claims runs that prefer another worker. SB-12, RX-51

A run prefers the worker that last executed a run of its session. Owns when this worker tries to claim runs
that prefer another one; the store decides whether a run may be claimed yet. A preference delays a run and
never blocks it, because the preferred worker may be stopped, full or stalled.
"""

import asyncio
from collections.abc import Callable

MERGE_SECONDS = 0.01  # runs deferred within this time are claimed together


class PreferredWorkerDelay:
    def __init__(self, seconds: float, claim: Callable[[int], None]) -> None:
        self.seconds = seconds  # 0: no preference
        self._claim = claim
        self._claims_at = 0.0

    def defer(self, latest_turn: int) -> None:
        """Call `claim` after the delay, with the latest turn that this worker knows now."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + self.seconds
        if self._claims_at < ends_at:  # else the call that is already scheduled covers this run too
            self._claims_at = ends_at + MERGE_SECONDS
            loop.call_at(self._claims_at, self._claim, latest_turn)
