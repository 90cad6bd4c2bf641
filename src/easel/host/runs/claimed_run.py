"""One run in a worker's hands, and why it may be stopped from outside."""

from enum import Enum, auto
from typing import TYPE_CHECKING

from easel.core.run.run import Claim

if TYPE_CHECKING:
    import asyncio

    from easel.host.runs.log_writer import RunLogWriter


class Stop(Enum):
    """Why a run is being stopped from outside."""

    CANCEL = auto()
    LOST = auto()
    HAND_BACK = auto()


class ClaimedRun:
    """One run in this worker's hands."""

    def __init__(self, claim: Claim, good_until: float) -> None:
        self.claim = claim
        self.good_until = good_until
        self.log: RunLogWriter
        self.task: asyncio.Task[None]
        self.stop: Stop | None = None
        self.has_begun = False
        self.is_ending = False

    def end_by(self, stop: Stop) -> None:
        """The first reason counts, except that a lost claim overrides everything; a run that is ending needs no cancel."""
        if stop is Stop.LOST:
            self.log.lose()
        elif self.is_ending or self.stop is not None:
            return
        self.stop = stop
        if (
            self.has_begun
        ):  # a task that is cancelled before its first step would never tell how its run ended
            self.task.cancel()
