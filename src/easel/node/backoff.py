"""How long to wait before the next attempt to connect: longer each time, up to a bound, and never the same
for two nodes.

A server that comes back finds its nodes spread over time, not all at its door in one moment.
"""

from dataclasses import dataclass

FIRST_SECONDS = 0.5
MAX_SECONDS = 30.0
GOOD_SECONDS = 10.0  # a connection that held for so long was a good one, and the next attempt is a first one


@dataclass(slots=True)
class Backoff:
    failures: int = 0

    def next_wait(self, luck: float) -> float:
        """`luck` from 0 to 1: half of the wait is left to it."""
        longest = min(FIRST_SECONDS * 2**self.failures, MAX_SECONDS)
        self.failures = min(self.failures + 1, 16)
        return longest * (0.5 + luck / 2)

    def held(self, seconds: float) -> None:
        if seconds >= GOOD_SECONDS:
            self.failures = 0

    def give_time(self) -> None:
        """What will not be better soon: wait long from now on."""
        self.failures = 16
