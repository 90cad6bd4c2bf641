"""Refresh jobs: when a job is due next, and how failures delay it. CV-19, X9"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from easel.ids import CanvasId, UserId

MAX_DOUBLINGS = 6  # a job that keeps failing runs at most 64 times less often
MAX_BACKOFF_MS = 3_600_000
JITTER = 0.1  # of the interval, so that canvases created together do not stay in step


Job = tuple[UserId, CanvasId, str]  # owner, canvas, and the id of the refresh in its spec


@dataclass(frozen=True, slots=True)
class Due:
    """A claimed job that is due, and its number of consecutive failures."""

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
    """A job whose last run failed: its consecutive failures, its next retry and its last error."""

    refresh_id: str
    action_id: str
    failures: int
    retry_seconds: float  # negative if the retry is due
    error: Mapping[str, Any] | None

    def to_json(self) -> dict[str, Any]:
        """Return the payload of `canvas.refresh.failed`, with the time left until the retry."""
        names = {"refreshId": self.refresh_id, "actionId": self.action_id, "failures": self.failures}
        error = {} if self.error is None else {"error": self.error}
        return {**names, **error, "retryInMs": max(0, round(self.retry_seconds * 1000))}


def next_delay(every_ms: int, failures: int, jitter: float) -> float:
    """Return the seconds until the next run: at least the interval, plus up to a tenth of it by `jitter` (0
    to 1).
    """
    backoff = every_ms * 2 ** min(failures, MAX_DOUBLINGS)
    wait = max(every_ms, min(backoff, MAX_BACKOFF_MS))
    return wait * (1 + JITTER * jitter) / 1000
