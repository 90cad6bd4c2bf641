"""What runs and boards need from outside: their stores."""

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
    """Runs, their queue and their logs. Only its clock decides whether a claim is over."""

    async def enqueue(self, new: NewRun) -> Enqueued:
        """Durable when it returns. Makes the session if need be. The same idempotency key gives the first run again. RX-31"""
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
        """Newest first; `before` is the `queue_no` to go on below."""
        ...

    async def request_cancel(
        self,
        user_id: UserId,
        run_id: RunId,
        closing: Sequence[Envelope] | None,
        answer: Message | None = None,
    ) -> CancelAnswer | None:
        """A queued run ends here and now with the `closing` events and its `answer`; a running one is flagged; an ended one stays. RX-12, RS-37

        Without `closing`, which nobody could say of a run that was running, one that is queued now is only answered: look again.
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
        """Take up to `capacity` runs whose turn came after `after_turn`, oldest turn first. RX-22

        `opening` is written into each log by the claim itself, with the run's id and its attempt filled in. A run whose turn came less
        than `prefer_seconds` ago is left to the worker that it prefers. SB-12
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
        """Take up to `capacity` runs whose worker did not renew in time: only, or none of, those on their last attempt. RX-37

        `opening` is as above, and left out where every attempt was lost: such a run does not start again.
        """
        ...

    async def claim_unacknowledged(
        self, worker_id: WorkerId, acknowledged: Collection[RunId], seconds: float, *, opened: bool
    ) -> list[Claim]:
        """What this worker has claimed without hearing so, because the answer was lost: the same attempts, untouched, pushed out. RX-49

        `acknowledged` are the runs it knows that it holds; `opened` says whether its claims come with an opening.
        """
        ...

    async def renew(self, claims: Sequence[Claim], seconds: float) -> dict[RunId, bool]:
        """Push claims out; the runs still held, each with whether a cancel was asked for. RX-26"""
        ...

    async def requested_cancels(self, worker_id: WorkerId) -> set[RunId]: ...

    async def append(self, batch: Batch) -> Appended | None:
        """None: this claim is no longer the run's, and nothing was stored. RX-13, RX-29"""
        ...

    async def release_claim(self, claim: Claim) -> bool:
        """Back into the queue at its old place, as if this attempt had not been; False: the claim was gone already."""
        ...

    async def bounds(self, user_id: UserId, run_id: RunId) -> Bounds | None: ...

    async def heads(self, run_ids: Sequence[RunId]) -> dict[RunId, int]: ...

    async def events_after(self, run_id: RunId, cursor: int, limit: int) -> list[LoggedEvent]: ...

    async def queue_depth(self) -> QueueDepth: ...

    async def prune(self, older_than_seconds: float) -> int:
        """Drop all but the last event of logs whose run ended that long ago; how many runs were touched."""
        ...

    async def probe(self) -> None:
        """A tiny durable write: raises `Unavailable` when the store cannot take one."""
        ...


class BoardStore(Protocol):
    """The boards of runs. A write, its version and its event in the run's log are one transaction under the run's lock."""

    async def write(self, write: BoardWrite, claim: Claim | None = None) -> Written | None:
        """None: there is no such run of this user, or the claim is no longer the run's; nothing was stored. CC-09, CC-16

        Raises what `BoardWrite.next_version` refuses with.
        """
        ...

    async def read(
        self, user_id: UserId, run_id: RunId, board: Board, *, edge_id: str | None, key: str | None
    ) -> list[BoardValue] | None:
        """By edge and key, each of which may be left open; None: there is no such run of this user."""
        ...
