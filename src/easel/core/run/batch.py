"""What a worker adds to a run's log in one go, and what the log answers."""

from collections.abc import Sequence
from dataclasses import dataclass

from easel.core.run.life import Status
from easel.core.run.run import Claim, Run
from easel.core.stream.envelope import Envelope


@dataclass(frozen=True, slots=True)
class Batch:
    """Events of one claim under the key (attempt, number): a repeated key stores nothing and gets the first answer.

    With `ends_as` the run ends in the same transaction, so that status and `done` can never disagree.
    """

    claim: Claim
    number: int
    events: Sequence[Envelope]
    ends_as: Status | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Appended:
    last_seq: int
    cancel_requested: bool
    turn_passed: bool = False  # another run of the session can be claimed now


@dataclass(frozen=True, slots=True)
class CancelAnswer:
    """The run after a cancel was asked for: `changed` says whether the asking did anything."""

    run: Run
    changed: bool
    turn_passed: bool = False


@dataclass(frozen=True, slots=True)
class Enqueued:
    run: Run
    is_new: bool


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """Runs by where they stand: ready to be claimed, waiting behind their session's active run, being executed."""

    ready: int
    waiting: int
    running: int
