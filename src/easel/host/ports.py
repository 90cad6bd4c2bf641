"""What the stories need from outside, as Protocols: stores, the bell, models and tools fulfil them.

Nothing here says how. A store raises `errors.Unavailable` when it cannot be reached; everything else it says in its answers.
"""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Protocol

from easel.core.run.batch import Appended, Batch, CancelAnswer, Enqueued, QueueDepth
from easel.core.run.conversation import Conversation, Part
from easel.core.run.life import Status
from easel.core.run.run import Claim, NewRun, Run
from easel.core.stream.envelope import Envelope
from easel.core.stream.log import Bounds, LoggedEvent
from easel.core.stream.ring import Ring
from easel.core.tool.definition import ToolDefinition
from easel.ids import RunId, SessionId, UserId, WorkerId


class RunStore(Protocol):
    """Runs, their queue and their logs. Only its clock decides whether a claim is over."""

    async def enqueue(self, new: NewRun) -> Enqueued:
        """Durable when it returns. Makes the session if need be. The same idempotency key gives the first run again. RX-31"""
        ...

    async def get(self, user_id: UserId, run_id: RunId) -> Run | None: ...

    async def list_runs(
        self, user_id: UserId, *, session_id: SessionId | None, statuses: Sequence[Status], before: int | None, limit: int
    ) -> list[Run]:
        """Newest first; `before` is the `queue_no` to go on below."""
        ...

    async def request_cancel(self, user_id: UserId, run_id: RunId, closing: Sequence[Envelope]) -> CancelAnswer | None:
        """A queued run ends here and now with the `closing` events; a running one is flagged; an ended one stays. RX-12, RS-37"""
        ...

    async def claim_queued(
        self, worker_id: WorkerId, room: int, seconds: float, after_turn: int, opening: Envelope | None = None
    ) -> list[Claim]:
        """Take up to `room` runs whose turn came after `after_turn`, oldest turn first. RX-22

        `opening` is written into each log by the claim itself, with the run's id and its attempt filled in.
        """
        ...

    async def claim_expired(
        self, worker_id: WorkerId, room: int, seconds: float, *, last_chance: bool | None = None, opening: Envelope | None = None
    ) -> list[Claim]:
        """Take up to `room` runs whose worker did not renew in time: only, or none of, those on their last attempt. RX-37

        `opening` is as above, and left out where every attempt was lost: such a run does not start again.
        """
        ...

    async def renew(self, claims: Sequence[Claim], seconds: float) -> dict[RunId, bool]:
        """Push claims out; the runs still held, each with whether a cancel was asked for. RX-26"""
        ...

    async def cancels_asked(self, worker_id: WorkerId) -> set[RunId]: ...

    async def append(self, batch: Batch) -> Appended | None:
        """None: this claim is no longer the run's, and nothing was stored. RX-13, RX-29"""
        ...

    async def hand_back(self, claim: Claim) -> bool:
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


class Bell(Protocol):
    """Wakes who waits, here and on other instances. The log is the truth: a lost ring costs one poll, never an event."""

    def ring(self, ring: Ring) -> None: ...

    def listen(self, hear: Callable[[Ring], None]) -> None: ...


class Model(Protocol):
    def reply(self, conversation: Conversation, tools: Sequence[ToolDefinition]) -> AsyncIterator[Part]:
        """One answer, part by part; it ends after its tool calls, if it makes any. Raises `ModelFailed`."""
        ...


class Tool(Protocol):
    @property
    def definition(self) -> ToolDefinition: ...

    async def use(self, args: Mapping[str, Any]) -> Any:
        """Runs until done or cancelled; a cancelled tool leaves nothing running. Raises `ToolFailed`."""
        ...


class Blobs(Protocol):
    async def put(self, key: str, data: bytes | AsyncIterable[bytes], *, size_limit: int | None = None) -> int: ...

    async def get(self, key: str) -> bytes: ...

    async def read(self, key: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]: ...

    async def size(self, key: str) -> int | None: ...

    async def delete(self, key: str) -> None: ...

    def list(self, prefix: str) -> AsyncIterator[str]: ...

    async def check(self) -> None: ...
