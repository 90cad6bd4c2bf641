"""A model of the queue and its logs in memory: the answers that every store must give.

Implements the rules a second time, as short as possible. It has no clock: a claim expires when the test
expires it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from easel.core.run.status import Status, is_terminal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from easel.ids import RunId, WorkerId


@dataclass
class ModelRun:
    run_id: RunId
    session: str
    max_attempts: int
    key: str | None
    digest: str | None
    status: Status = Status.QUEUED
    turn: int | None = None
    attempt: int = 0
    owner: WorkerId | None = None
    expired_at: int | None = None  # the position of its expiry among all expiries
    was_started: bool = False
    cancel_requested: bool = False
    error: str | None = None
    batch_no: int = 0
    batch_seq: int = 0
    log: list[str] = field(default_factory=list)  # the text of each event
    oldest: int = 1

    @property
    def is_waiting(self) -> bool:
        return self.status is Status.QUEUED and self.turn is None

    @property
    def is_ready(self) -> bool:
        return self.status is Status.QUEUED and self.turn is not None


@dataclass(frozen=True)
class ModelClaim:
    run_id: RunId
    owner: WorkerId
    attempt: int


class ModelQueue:
    def __init__(self) -> None:
        self.runs: dict[RunId, ModelRun] = {}  # in order of arrival
        self._turns = 0
        self._expiries = 0

    # -- enqueueing

    def enqueue(self, run: ModelRun) -> RunId | None:
        """Return the id of the new or the earlier run, None if the key was used for another request."""
        if run.key is not None:
            for earlier in self.runs.values():
                if earlier.key == run.key:
                    return earlier.run_id if earlier.digest == run.digest else None
        self.runs[run.run_id] = run
        self._pass_turn(run.session)
        return run.run_id

    def _pass_turn(self, session: str) -> bool:
        runs = [run for run in self.runs.values() if run.session == session]
        if any(run.turn is not None and not is_terminal(run.status) for run in runs):
            return False
        for run in runs:
            if run.is_waiting:
                self._turns += 1
                run.turn = self._turns
                return True
        return False

    # -- claiming

    def claim(self, worker: WorkerId, capacity: int, after: RunId | None) -> list[ModelClaim]:
        after_turn = (self.runs[after].turn if after else 0) or 0
        ready = sorted(
            (run.turn, run)
            for run in self.runs.values()
            if run.is_ready and run.turn is not None and run.turn > after_turn
        )
        return [self._take(run, worker) for _, run in ready[:capacity]]

    def take_over(self, worker: WorkerId, capacity: int) -> list[ModelClaim]:
        expired = sorted(
            (run.expired_at, run.run_id) for run in self.runs.values() if run.expired_at is not None
        )
        taken = [self.runs[run_id] for _, run_id in expired[:capacity]]
        for run in taken:
            run.max_attempts += run.owner == worker  # the worker was frozen, not lost
        return [self._take(run, worker) for run in taken]

    def _take(self, run: ModelRun, worker: WorkerId) -> ModelClaim:
        run.status, run.owner, run.attempt, run.batch_no, run.expired_at, run.was_started = (
            Status.RUNNING,
            worker,
            run.attempt + 1,
            0,
            None,
            True,
        )
        return ModelClaim(run.run_id, worker, run.attempt)

    def valid_claims(self) -> list[RunId]:
        return [
            run.run_id
            for run in self.runs.values()
            if run.status is Status.RUNNING and run.expired_at is None
        ]

    def expire(self, run_id: RunId) -> int:
        """Expire the claim of this run. Returns the number of expiries so far."""
        self._expiries += 1
        self.runs[run_id].expired_at = self._expiries
        return self._expiries

    def is_newest(self, claim: ModelClaim) -> bool:
        run = self.runs[claim.run_id]
        return (run.owner, run.attempt) == (claim.owner, claim.attempt)

    def is_valid(self, claim: ModelClaim) -> bool:
        return self.is_newest(claim) and claim.run_id in self.valid_claims()

    def release_claim(self, claim: ModelClaim) -> bool:
        run = self.runs[claim.run_id]
        if not self.is_newest(claim) or run.status is not Status.RUNNING:
            return False
        run.status, run.owner, run.expired_at, run.max_attempts = (
            Status.QUEUED,
            None,
            None,
            run.max_attempts + 1,
        )
        return True

    # -- the log

    def append(
        self, claim: ModelClaim, number: int, events: Iterable[str], ends_as: Status | None
    ) -> tuple[int, bool, bool] | None:
        """Return (last seq, cancel requested, turn passed), None if the claim is invalid."""
        run = self.runs[claim.run_id]
        if self.is_valid(claim) and number == run.batch_no + 1:
            run.log += events
            run.batch_no, run.batch_seq = number, len(run.log)
            return run.batch_seq, run.cancel_requested, ends_as is not None and self._end(run, ends_as)
        if self.is_newest(claim) and number == run.batch_no:
            return run.batch_seq, run.cancel_requested, ends_as is not None
        return None

    def _end(self, run: ModelRun, status: Status) -> bool:
        run.status, run.expired_at, run.error = status, None, "why" if status is Status.FAILED else None
        return self._pass_turn(run.session)

    def cancel(self, run_id: RunId) -> tuple[bool, bool]:
        """Return (changed, turn passed)."""
        run = self.runs[run_id]
        if is_terminal(run.status):
            return False, False
        changed, run.cancel_requested = not run.cancel_requested, True
        if run.status is Status.RUNNING:
            return changed, False
        run.log += ["run.status", "done"]
        had_turn = run.turn is not None
        return True, self._end(run, Status.CANCELLED) and had_turn

    def prune(self, run_ids: Iterable[RunId]) -> int:
        prunable = [run for run in map(self.runs.__getitem__, run_ids) if run.oldest < len(run.log)]
        for run in prunable:
            run.oldest = len(run.log)
        return len(prunable)
