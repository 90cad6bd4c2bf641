"""Jobs that run an action by themselves: when the next time is, and how failures slow one down. CV-19, X9"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from easel.ids import CanvasId, UserId

MAX_DOUBLINGS = 6  # a job that fails and fails is tried 64 times as rarely
MAX_BACKOFF_MS = 3_600_000
JITTER = 0.1  # of the interval: many canvases that were made together do not stay together


Job = tuple[UserId, CanvasId, str]  # whose, on which canvas, and its name there


@dataclass(frozen=True, slots=True)
class Due:
    """A job whose time has come, and how often in a row it has failed."""

    user_id: UserId
    canvas_id: CanvasId
    refresh_id: str
    action_id: str
    every_ms: int
    failures: int

    @property
    def job(self) -> Job:
        return self.user_id, self.canvas_id, self.refresh_id


@dataclass(frozen=True, slots=True)
class Failing:
    """A job whose last time has failed: how often in a row, when it is tried again, and what was told of it."""

    refresh_id: str
    action_id: str
    failures: int
    retry_seconds: float  # less than nothing: it is due
    error: Mapping[str, Any] | None

    @property
    def shown(self) -> dict[str, Any]:
        """As `canvas.refresh.failed` told it, with the time that is left until it is tried again."""
        named = {"refreshId": self.refresh_id, "actionId": self.action_id, "failures": self.failures}
        error = {} if self.error is None else {"error": self.error}
        return {**named, **error, "retryInMs": max(0, round(self.retry_seconds * 1000))}


def next_delay(every_ms: int, failures: int, dice: float) -> float:
    """Seconds until a job's next time. `dice` is between 0 and 1: it is never early, and up to a tenth of its interval late."""
    slowed = every_ms * 2 ** min(failures, MAX_DOUBLINGS)
    wait = max(every_ms, min(slowed, MAX_BACKOFF_MS))
    return wait * (1 + JITTER * dice) / 1000
