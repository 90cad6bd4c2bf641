"""Runs that a worker leaves to another for a moment: the one that their session had last has the first chance. SB-12, RX-51

Owns when this worker looks for them after all, and nothing else: whether a run may be taken yet is the store's to say when it is claimed.
A preference never keeps a run from being started: the other may be gone, full or stalled, and nobody asks.
"""

import asyncio
from collections.abc import Callable

SHARED_LOOK_SECONDS = 0.01  # what is left to others within so short a time is looked for together


class PreferredWorkerDelay:
    def __init__(self, seconds: float, look: Callable[[int], None]) -> None:
        self.seconds = seconds  # for how long the other has the first chance; 0: not at all
        self._look = look
        self._look_at = 0.0

    def leave(self, latest_turn: int) -> None:
        """Look when the other's time is over, and say where the queue's end was when this was left."""
        loop = asyncio.get_running_loop()
        over_at = loop.time() + self.seconds
        if self._look_at < over_at:  # else the look that is due then finds this one too
            self._look_at = over_at + SHARED_LOOK_SECONDS
            loop.call_at(self._look_at, self._look, latest_turn)
