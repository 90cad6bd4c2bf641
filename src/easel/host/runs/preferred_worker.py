"""The delay before a worker claims runs that prefer another worker, which had their session last. SB-12,
RX-51

Owns when this worker tries to claim them. Does not know whether a run may be claimed yet: the store decides
that. A preference never keeps a run from being started, because the preferred worker may be stopped, full or
stalled.
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
        """Call `claim` with this position of the queue's end when the delay is over."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + self.seconds
        if self._claims_at < ends_at:  # else the call that is already scheduled covers this run too
            self._claims_at = ends_at + MERGE_SECONDS
            loop.call_at(self._claims_at, self._claim, latest_turn)
