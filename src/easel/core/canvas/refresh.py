"""Refresh jobs: the delay until the next execution of a job, and the backoff after failures. CV-19, X9"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from easel.ids import AccountId, CanvasId

MAX_DOUBLINGS = 6  # the backoff is at most 64 times the interval
MAX_BACKOFF_MS = 3_600_000
JITTER = 0.1  # share of the delay; spreads the jobs of canvases that were created together


Job = tuple[AccountId, CanvasId, str]  # owner, canvas, and the id of the refresh in the spec


@dataclass(frozen=True, slots=True)
class Due:
    """A job that is due and was claimed, with its number of consecutive failures."""

    account_id: AccountId
    canvas_id: CanvasId
    refresh_id: str
    action_id: str
    every_ms: int
    failures: int

    @property
    def job(self) -> Job:
        return self.account_id, self.canvas_id, self.refresh_id


@dataclass(frozen=True, slots=True)
class Failing:
    """A job whose last execution failed: consecutive failures, time until the retry, and last error."""

    refresh_id: str
    action_id: str
    failures: int
    retry_seconds: float  # negative if the retry is due
    error: Mapping[str, Any] | None

    def to_json(self) -> dict[str, Any]:
        """Return the payload of the event `canvas.refresh.failed`."""
        names = {"refreshId": self.refresh_id, "actionId": self.action_id, "failures": self.failures}
        error = {} if self.error is None else {"error": self.error}
        return {**names, **error, "retryInMs": max(0, round(self.retry_seconds * 1000))}


def next_delay(every_ms: int, failures: int, jitter: float) -> float:
    """Return the seconds until the next execution: the interval, doubled for each consecutive failure.

    `jitter` (0 to 1) adds up to a tenth. The backoff ends at `MAX_BACKOFF_MS`, but is at least the interval.
    """
    backoff = every_ms * 2 ** min(failures, MAX_DOUBLINGS)
    wait = max(every_ms, min(backoff, MAX_BACKOFF_MS))
    return wait * (1 + JITTER * jitter) / 1000
