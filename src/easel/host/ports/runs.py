"""Ports of runs and boards: their stores."""

from collections.abc import Collection, Sequence
from typing import Protocol

from easel.core.run.batch import Appended, Batch, CancelAnswer, Enqueued, QueueDepth
from easel.core.run.boards import Board, BoardValue, BoardWrite, Written
from easel.core.run.run import Claim, NewRun, Run
from easel.core.run.status import Status
from easel.core.session.message import Message
from easel.core.stream.envelope import Envelope
from easel.core.stream.log import Bounds, LoggedEvent
from easel.ids import RunId, SessionId, UserId, WorkerId


class RunStore(Protocol):
    """Runs, their queue and their logs. Its clock alone decides whether a claim has expired."""

    async def enqueue(self, new: NewRun) -> Enqueued:
        """Enqueue a run, and create its session if needed.

        Durable when it returns. A repeated idempotency key returns the first run. RX-31
        """
        ...

    async def get(self, user_id: UserId, run_id: RunId) -> Run | None: ...

    async def list_runs(
        self,
        user_id: UserId,
        *,
        session_id: SessionId | None,
        statuses: Sequence[Status],
        before: int | None,
        limit: int,
    ) -> list[Run]:
        """Return runs below the `queue_no` in `before`, newest first."""
        ...

    async def request_cancel(
        self,
        user_id: UserId,
        run_id: RunId,
        closing: Sequence[Envelope] | None,
        answer: Message | None = None,
    ) -> CancelAnswer | None:
        """Cancel a queued run with its `closing` events and `answer`, or flag a running one. RX-12, RS-37

        A run that has ended stays as it is. Without `closing`, because the run was running when it was read,
        a run that is queued by now is returned unchanged.
        """
        ...

    async def claim_queued(
        self,
        worker_id: WorkerId,
        capacity: int,
        seconds: float,
        after_turn: int,
        opening: Envelope | None = None,
        *,
        prefer_seconds: float = 0,
    ) -> list[Claim]:
        """Claim up to `capacity` runs whose turn is after `after_turn`, oldest turn first. RX-22

        The claim writes `opening` into each log, with the id and the attempt of the run filled in. A run that
        became ready less than `prefer_seconds` ago is claimed only by the worker that it prefers. SB-12
        """
        ...

    async def claim_expired(
        self,
        worker_id: WorkerId,
        capacity: int,
        seconds: float,
        *,
        last_chance: bool | None = None,
        opening: Envelope | None = None,
    ) -> list[Claim]:
        """Claim up to `capacity` runs whose worker did not renew in time. RX-37

        `last_chance` selects only, or none of, the runs on their last attempt. `opening` is written as above,
        except where all attempts are used: such a run does not start again.
        """
        ...

    async def claim_unacknowledged(
        self, worker_id: WorkerId, acknowledged: Collection[RunId], seconds: float, *, opened: bool
    ) -> list[Claim]:
        """Return and renew the claims of this worker whose reply was lost, with the same attempt. RX-49

        `acknowledged` are the runs of which it has the claim; `opened` says whether its claims wrote an
        opening.
        """
        ...

    async def renew(self, claims: Sequence[Claim], seconds: float) -> dict[RunId, bool]:
        """Renew claims. Returns the valid ones, each with whether a cancel was requested. RX-26"""
        ...

    async def requested_cancels(self, worker_id: WorkerId) -> set[RunId]: ...

    async def append(self, batch: Batch) -> Appended | None:
        """Append a batch to the log. Returns None, and stores nothing, if the claim was lost. RX-13, RX-29"""
        ...

    async def release_claim(self, claim: Claim) -> bool:
        """Return a run to its place in the queue, without counting the attempt.

        Returns False if the claim was lost.
        """
        ...

    async def bounds(self, user_id: UserId, run_id: RunId) -> Bounds | None: ...

    async def heads(self, run_ids: Sequence[RunId]) -> dict[RunId, int]: ...

    async def events_after(self, run_id: RunId, cursor: int, limit: int) -> list[LoggedEvent]: ...

    async def queue_depth(self) -> QueueDepth: ...

    async def prune(self, older_than_seconds: float) -> int:
        """Delete all but the last event of logs whose run ended at least this long ago.

        Returns how many runs.
        """
        ...

    async def probe(self) -> None:
        """Make a small durable write. Raises `Unavailable` if the store cannot."""
        ...


class BoardStore(Protocol):
    """The boards of runs. One transaction, which locks the run, stores a write, its version and its event."""

    async def write(self, write: BoardWrite, claim: Claim | None = None) -> Written | None:
        """Store a write. Returns None if the user has no such run or the claim was lost. CC-09, CC-16

        Raises what `BoardWrite.next_version` raises.
        """
        ...

    async def read(
        self, user_id: UserId, run_id: RunId, board: Board, *, edge_id: str | None, key: str | None
    ) -> list[BoardValue] | None:
        """Return values, filtered by edge and key if given. None: the user has no such run."""
        ...
