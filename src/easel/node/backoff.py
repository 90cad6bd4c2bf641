"""The delay before the next attempt to connect: exponential, bounded, and with jitter.

When a server restarts, the jitter spreads the reconnects of its nodes over time.
"""

from dataclasses import dataclass

FIRST_SECONDS = 0.5
MAX_SECONDS = 30.0
STABLE_SECONDS = 10.0  # a connection that lasted this long resets the delay
_MAX_EXPONENT = 16


@dataclass(slots=True)
class Backoff:
    failures: int = 0

    def next_delay(self, jitter: float) -> float:
        """Return the delay in seconds; half of it depends on `jitter`, from 0 to 1."""
        delay = min(FIRST_SECONDS * 2**self.failures, MAX_SECONDS)
        self.failures = min(self.failures + 1, _MAX_EXPONENT)
        return delay * (0.5 + jitter / 2)

    def note_connection(self, seconds: float) -> None:
        """Reset the delay if the connection lasted long enough."""
        if seconds >= STABLE_SECONDS:
            self.failures = 0

    def use_max_delay(self) -> None:
        """Use the longest delay from now on, for a failure that will probably last."""
        self.failures = _MAX_EXPONENT
