"""Batches of events that a worker appends to a run's log, and the results of the store."""

from collections.abc import Sequence
from dataclasses import dataclass

from easel.core.run.run import Claim, Run
from easel.core.run.status import Status
from easel.core.session.message import Message
from easel.core.stream.envelope import Envelope, Stream
from easel.ids import WorkerId


@dataclass(frozen=True, slots=True)
class Batch:
    """Events of one claim. A repeated key (attempt, number) stores nothing and returns the first result.

    With `ends_as` the run ends in the same transaction, so that status and `done` always agree, and its
    answer is stored.
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
    thread_seq: int | None  # of the last event added to the thread, if any
    cancel_requested: bool
    turn_passed: bool = False  # another run of the session can be claimed now


@dataclass(frozen=True, slots=True)
class CancelAnswer:
    """The run after a requested cancel; `changed`: the request had an effect."""

    run: Run
    changed: bool
    turn_passed: bool = False
    thread_seq: int | None = None  # of the run's answer, if it has one
    prefers: WorkerId | None = None  # the worker with a head start on the next run
    must_retry: bool = False  # the run went back into the queue after its closing events were prepared


@dataclass(frozen=True, slots=True)
class Enqueued:
    run: Run
    is_new: bool
    thread_seq: int | None = None  # of the user's message
    prefers: WorkerId | None = None  # the worker with a head start


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """Number of runs that can be claimed, that wait for their session's active run, and that are executed."""

    ready: int
    waiting: int
    running: int


def thread_positions(events: Sequence[Envelope]) -> list[int | None]:
    """Return for each event its position among those of the thread, from 1; None for other events."""
    places: list[int | None] = []
    last = 0
    for event in events:
        if event.stream is Stream.NARRATIVE:
            last += 1
            places.append(last)
        else:
            places.append(None)
    return places
