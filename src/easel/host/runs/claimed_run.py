"""A run that this worker has claimed, and the reasons for which its task is cancelled."""

from enum import Enum, auto
from typing import TYPE_CHECKING

from easel.core.run.run import Claim, ClaimLost
from easel.errors import AttemptsExhausted, Forbidden, InternalError
from easel.host.runs.tool_loop import ReleaseRun
from easel.ids import new_reference

if TYPE_CHECKING:
    import asyncio

    from easel.host.runs.log_writer import RunLogWriter

# A worker that takes over its own run gets the attempt back, so failures to end it are counted here.
MAX_FAILED_ENDS = 2
STARTER_LEFT = "the person who started this run may not run agents in this account any more."


class StopReason(Enum):
    CANCEL = auto()
    CLAIM_LOST = auto()
    RELEASE = auto()  # the worker stops; the run goes back into the queue


class ClaimedRun:
    def __init__(self, claim: Claim, claim_expires_at: float, failed_ends: int = 0) -> None:
        self.claim = claim
        self._failed_ends = failed_ends  # how often this worker could not store the end of the run
        self.claim_expires_at = claim_expires_at  # by the monotonic clock of this process
        self.log: RunLogWriter
        self.task: asyncio.Task[None]
        self.stop_reason: StopReason | None = None
        self.has_started = False
        self.is_ending = False

    def check_may_start(self) -> None:
        """Raise if the run was stopped before its first step, or must not be attempted again."""
        if self.stop_reason is StopReason.CLAIM_LOST:
            raise ClaimLost
        if self.stop_reason is StopReason.RELEASE:
            raise ReleaseRun
        if not self.claim.may_act:
            raise Forbidden(problem=STARTER_LEFT)
        if self.claim.is_exhausted:
            raise AttemptsExhausted(attempts=self.claim.max_attempts)
        if self._failed_ends > MAX_FAILED_ENDS:
            raise InternalError(reference=new_reference())

    def request_stop(self, reason: StopReason) -> None:
        """Cancel the task. The first reason counts, except that a lost claim overrides all others."""
        if reason is StopReason.CLAIM_LOST:
            self.log.mark_claim_lost()
        elif self.is_ending or self.stop_reason is not None:
            return
        self.stop_reason = reason
        # A task that is cancelled before it has started could not store the end of its run. It checks
        # `stop_reason` when it starts.
        if self.has_started:
            self.task.cancel()
