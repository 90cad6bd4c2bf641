"""What a worker adds to a run's log in one go, and what the log answers."""

from collections.abc import Sequence
from dataclasses import dataclass

from easel.core.run.run import Claim, Run
from easel.core.run.status import Status
from easel.core.session.message import Message
from easel.core.stream.envelope import Envelope, Stream
from easel.ids import WorkerId


@dataclass(frozen=True, slots=True)
class Batch:
    """Events of one claim under the key (attempt, number): a repeated key stores nothing and gets the first answer.

    With `ends_as` the run ends in the same transaction, so that status and `done` can never disagree, and the message
    that the run leaves behind is stored with it.
    """

    claim: Claim
    number: int
    events: Sequence[Envelope]
    ends_as: Status | None = None
    error: str | None = None
    answer: Message | None = None


@dataclass(frozen=True, slots=True)
class Appended:
    last_seq: int
    thread_seq: int | None  # of the last event that went into the thread; None: none did
    cancel_requested: bool
    turn_passed: bool = False  # another run of the session can be claimed now


@dataclass(frozen=True, slots=True)
class CancelAnswer:
    """The run after a cancel was asked for: `changed` says whether the asking did anything."""

    run: Run
    changed: bool
    turn_passed: bool = False
    thread_seq: int | None = None  # of the message that it left, if it left one
    prefers: WorkerId | None = None  # who has the first chance to claim the run whose turn has come
    must_retry: bool = (
        False  # it has gone back into the queue since it was looked at: how its log ends must be said anew
    )


@dataclass(frozen=True, slots=True)
class Enqueued:
    run: Run
    is_new: bool
    thread_seq: int | None = None  # of the message that the run answers
    prefers: WorkerId | None = None  # who has the first chance to claim it


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """Runs by where they stand: ready to be claimed, waiting behind their session's active run, being executed."""

    ready: int
    waiting: int
    running: int


def thread_positions(events: Sequence[Envelope]) -> list[int | None]:
    """For each event its place among those that go into the thread, from 1; None for the others."""
    places: list[int | None] = []
    last = 0
    for event in events:
        if event.stream is Stream.NARRATIVE:
            last += 1
            places.append(last)
        else:
            places.append(None)
    return places
