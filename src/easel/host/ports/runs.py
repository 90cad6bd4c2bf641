"""Ports of runs, their turns and their boards: their stores."""

from collections.abc import Collection, Sequence
from typing import Protocol

from easel.core.run.batch import Appended, Batch, CancelAnswer, Enqueued, QueueDepth
from easel.core.run.boards import Board, BoardValue, BoardWrite, Written
from easel.core.run.past_turn import PastTurn
from easel.core.run.run import Claim, NewRun, Run
from easel.core.run.status import Status
from easel.core.session.message import Message
from easel.core.stream.envelope import Envelope
from easel.core.stream.log import Bounds, LoggedEvent
from easel.ids import AccountId, RunId, SessionId, WorkerId


class TurnStore(Protocol):
    """The earlier turns of a session, of which the context of a run is made."""

    async def list_turns(self, claim: Claim, *, before: RunId, limit: int) -> list[PastTurn]:
        """Return ended turns of the claim's session before the run `before`, newest first."""
        ...

    async def read_logs(
        self, run_ids: Sequence[RunId], types: Collection[str]
    ) -> dict[RunId, list[LoggedEvent]]:
        """Return the events of these types of each log, in order, in one query."""
        ...


class RunStore(TurnStore, Protocol):
    """Runs, their queue and their logs. The store's clock alone decides whether a claim has expired."""

    async def enqueue(self, new: NewRun) -> Enqueued:
        """Enqueue a run durably, and create its session if needed.

        A repeated idempotency key returns the first run. If a deleted session of the same id is not purged
        yet, it is purged first. A user's message ends the leases of the session's runs. RX-31, CT-18
        Raises `TooMany` if the account has `max_queued` queued runs.
        """
        ...

    async def get(self, account_id: AccountId, run_id: RunId) -> Run | None: ...

    async def list_runs(
        self,
        account_id: AccountId,
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
        account_id: AccountId,
        run_id: RunId,
        closing: Sequence[Envelope] | None,
        answer: Message | None = None,
    ) -> CancelAnswer | None:
        """Cancel a queued run with its `closing` events and `answer`, or flag a running one. RX-12, RS-37

        A run that has ended is not changed. `closing` is None if the run was running when the caller read it;
        if the run is queued by now, it is not changed and the caller must retry. The leases of the run end
        in the same transaction. CT-18
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
        """Claim up to `capacity` runs whose worker did not renew its claim in time. RX-37

        `last_chance` selects only the runs that begin their last attempt (True), or only other runs (False).
        `opening` is written as by `claim_queued`, but not for a run without attempts left: it only ends.
        """
        ...

    async def claim_unacknowledged(
        self, worker_id: WorkerId, acknowledged: Collection[RunId], seconds: float, *, opened: bool
    ) -> list[Claim]:
        """Return and renew the claims of this worker whose reply was lost, with the same attempt. RX-49

        `acknowledged` are the runs whose claim the worker has received; `opened` says whether its claims
        wrote an opening event.
        """
        ...

    async def renew(self, claims: Sequence[Claim], seconds: float) -> dict[RunId, bool | None]:
        """Renew claims. Returns for each run with a valid claim whether a cancel was requested. RX-26

        None means that the run is locked now: its claim is valid, but was not renewed.
        """
        ...

    async def requested_cancels(self, worker_id: WorkerId) -> set[RunId]: ...

    async def append(self, batch: Batch) -> Appended | None:
        """Append a batch to the log. Returns None, and stores nothing, if the claim was lost. RX-13, RX-29

        The same transaction stores the hidden messages of the batch, and marks the drafts that they report:
        before the user's message, or after the answer if the batch ends the run. CT-34, CT-51
        """
        ...

    async def release_claim(self, claim: Claim) -> bool:
        """Return a run to its place in the queue, without counting the attempt.

        Returns False if the claim was lost.
        """
        ...

    async def give_slots(self) -> int:
        """Give free slots of accounts to the runs that wait for one. Returns how many got one.

        Runs get them when others of the account end; this is for a limit that was changed.
        """
        ...

    async def bounds(self, account_id: AccountId, run_id: RunId) -> Bounds | None: ...

    async def heads(self, run_ids: Sequence[RunId]) -> dict[RunId, int]: ...

    async def events_after(self, run_id: RunId, cursor: int, limit: int) -> list[LoggedEvent]: ...

    async def queue_depth(self) -> QueueDepth: ...

    async def prune(self, older_than_seconds: float) -> list[RunId]:
        """Delete all but the last event of some logs whose run ended at least this long ago.

        Works in short transactions, and skips sessions that are locked. Returns the pruned runs; an empty
        list means that there is nothing left to prune now.
        """
        ...

    async def probe(self) -> None:
        """Make a small durable write. Raises `Unavailable` if the store does not accept it."""
        ...


class BoardStore(Protocol):
    """The boards of runs. Each write, its version and its event are stored in one transaction."""

    async def write(self, write: BoardWrite, claim: Claim | None = None) -> Written | None:
        """Store a write. Returns None if the account has no such run or the claim was lost. CC-09, CC-16

        Locks the run. Raises the errors of `BoardWrite.next_version`.
        """
        ...

    async def read(
        self, account_id: AccountId, run_id: RunId, board: Board, *, edge_id: str | None, key: str | None
    ) -> list[BoardValue] | None:
        """Return values, filtered by edge and key if given. None: the account has no such run."""
        ...
