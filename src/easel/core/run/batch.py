"""Values that the store of runs takes and returns: batches of events, and the results of operations."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from easel.core.document.document import Reported
from easel.core.run.run import Claim, Run
from easel.core.run.status import Status
from easel.core.session.message import Message
from easel.core.stream.envelope import Envelope, Stream
from easel.core.stream.json_text import to_storable_text
from easel.ids import CanvasId, WorkerId


@dataclass(frozen=True, slots=True)
class Batch:
    """Events that a worker appends to a run's log under its claim.

    A repeated batch, with the same attempt and `number`, stores nothing and returns the first result. With
    `ends_as`, the same transaction ends the run and stores its answer, so that the run's status always agrees
    with its `done` event.
    """

    claim: Claim
    number: int
    events: Sequence[Envelope]
    ends_as: Status | None = None
    error: str | None = None  # may quote a provider or a tool, so its text is made storable
    answer: Message | None = None
    hidden: Sequence[Message] = ()  # hidden canvas updates, stored as messages of role user. CT-51
    reported: Sequence[Reported] = ()  # the drafts that `hidden` reports

    def __post_init__(self) -> None:
        if self.error is not None:
            object.__setattr__(self, "error", to_storable_text(self.error))


@dataclass(frozen=True, slots=True)
class Appended:
    last_seq: int
    thread_seq: int | None  # position of the last event that was added to the thread, if any
    cancel_requested: bool
    turn_passed: bool = False  # whether the next run of the session can be claimed now


@dataclass(frozen=True, slots=True)
class CancelAnswer:
    """The result of a cancel request: the run afterwards, and whether the request `changed` it."""

    run: Run
    changed: bool
    turn_passed: bool = False
    thread_seq: int | None = None  # position of the run's answer in the thread, if it has an answer
    prefers: WorkerId | None = None  # the worker that may claim the next run first
    must_retry: bool = False  # the run is queued, but the request has no closing events
    preempted: tuple[CanvasId, ...] = ()  # documents whose lease ended. CT-18


@dataclass(frozen=True, slots=True)
class Enqueued:
    run: Run
    is_new: bool
    thread_seq: int | None = None  # position of the user's message in the thread
    prefers: WorkerId | None = None  # the worker that may claim the run first
    preempted: tuple[CanvasId, ...] = ()  # documents whose lease ended. CT-18
    account_seq: int | None = None  # position in the account's log, if the run created or titled its session
    queued_count: int | None = None  # queued runs of the account with this one, if they were counted


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """The numbers of runs: ready to be claimed, waiting for an earlier run of their session, and running."""

    ready: int
    waiting: int
    running: int


def thread_positions(events: Sequence[Envelope]) -> list[int | None]:
    """Return for each event its position, from 1, among the thread's events; None for other events."""
    places = count(1)
    return [next(places) if event.stream is Stream.NARRATIVE else None for event in events]
