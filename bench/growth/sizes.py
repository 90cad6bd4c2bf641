"""The sizes of filled databases, and the ids and ages of their rows.

Rows are numbered from 1. The same number means the same id in SQL (`filling`) and in calls (`samples`).
"""

from __future__ import annotations

from dataclasses import dataclass

EVENTS_PER_RUN = 10
EVENTS_PER_CANVAS = 10  # and as many action records
BIG_SESSIONS = 4  # `big0` is read, the others are deleted
RUNS_PER_BOARD = 10
BIG_CANVAS = "c-big"
RETENTION_DAYS = 1
# The oldest 2 % of the rows have expired when a database is filled, and another 1 % expires every minute, so
# that background tasks have work during the whole measurement.
EXPIRED_SECONDS = 120
EXPIRY_SPAN_SECONDS = 6_000


@dataclass(frozen=True, slots=True)
class Size:
    runs: int
    sessions: int
    canvases: int
    reserved: int  # of sessions and canvases, the last ones: only deletes use them

    @property
    def big_runs(self) -> int:
        """The number of runs in the big sessions; they are the first ones."""
        return self.runs // 100

    @property
    def referenced_artifacts(self) -> int:
        """The number of artifacts that have references: one from a run and one from a canvas each."""
        return self.runs // 5

    @property
    def artifacts(self) -> int:
        return self.referenced_artifacts + self.referenced_artifacts // 20

    @property
    def big_canvas_events(self) -> int:
        """The number of events of the big canvas, and of its action records."""
        return max(self.runs // 100, EVENTS_PER_CANVAS)

    @property
    def audit_records(self) -> int:
        return self.runs // 10

    def is_kept(self, run_number: int) -> bool:
        """Return whether the session of this run is not among those that are deleted."""
        if run_number <= self.big_runs:
            return run_number % BIG_SESSIONS == 0
        return run_number % self.sessions + 1 <= self.sessions - self.reserved

    @property
    def label(self) -> str:
        return f"{self.runs:,} runs"


def run_id(number: int) -> str:
    return f"run_0{number:025}"


def session_id(number: int) -> str:
    return f"s{number}"


def canvas_id(number: int) -> str:
    return f"c{number}"
