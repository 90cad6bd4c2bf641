"""What the stories need from outside, as Protocols: stores, the bell, models and tools fulfil them.

Nothing here says how. A store raises `errors.Unavailable` when it cannot be reached; everything else it says in its answers.
"""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from easel.core.artifact.artifact import Artifact, NewArtifact, Place, Swept
from easel.core.audit.chain import End, Link
from easel.core.audit.record import Entry, StorageClass
from easel.core.canvas.canvas import Canvas, Decide, NewCanvas, Outcome, View, WholeCanvas
from easel.core.canvas.execution import Awaited, Execution
from easel.core.canvas.execution import Status as ExecutionStatus
from easel.core.canvas.refresh import Due, Job
from easel.core.canvas.retention import LogPlace, OldLogs
from easel.core.run.batch import Appended, Batch, CancelAnswer, Enqueued, QueueDepth
from easel.core.run.boards import Board, BoardValue, BoardWrite, Written
from easel.core.run.conversation import Conversation, Part
from easel.core.run.run import Claim, NewRun, Run
from easel.core.run.status import Status
from easel.core.session.message import Message, StoredMessage
from easel.core.session.session import Session
from easel.core.stream.envelope import Envelope
from easel.core.stream.log import Bounds, LoggedEvent
from easel.core.stream.notifications import Ring
from easel.core.stream.payload_limit import Moved
from easel.core.tool.context import ToolContext
from easel.core.tool.definition import ToolDefinition
from easel.ids import ArtifactId, CanvasId, RunId, SessionId, UserId, WorkerId


class LogSource(Protocol):
    """A kind of log, as its tails read it."""

    async def bounds(self, user_id: UserId, name: Any, /) -> Bounds | None: ...

    async def heads(self, keys: Sequence[Any], /) -> Mapping[Any, int]: ...

    async def events_after(self, key: Any, cursor: int, limit: int, /) -> list[LoggedEvent]: ...


class SessionStore(LogSource, Protocol):
    """Sessions, their messages and their threads."""

    async def create(self, user_id: UserId, session_id: SessionId, title: str | None) -> Session | None:
        """None: there is one already."""
        ...

    async def get(self, user_id: UserId, session_id: SessionId) -> Session | None: ...

    async def list_sessions(self, user_id: UserId, *, search: str, before: tuple[datetime, SessionId] | None, limit: int) -> list[Session]:
        """Latest message first; `search` is looked for in titles and ids."""
        ...

    async def rename(self, user_id: UserId, session_id: SessionId, title: str) -> Session | None: ...

    async def delete(self, user_id: UserId, session_id: SessionId) -> list[RunId] | None:
        """With all that belongs to it; the runs that went with it. None: there was no such session."""
        ...

    async def messages(self, user_id: UserId, session_id: SessionId, *, before: int | None, limit: int) -> list[StoredMessage]:
        """The newest below `before`, oldest first."""
        ...


class CanvasStore(LogSource, Protocol):
    """Canvases, their logs, and the rows of their assets and views."""

    async def create(self, new: NewCanvas, event: Envelope) -> WholeCanvas | None:
        """With the first event of its log. None: there is one already."""
        ...

    async def get(self, user_id: UserId, canvas_id: CanvasId) -> WholeCanvas | None: ...

    async def list_canvases(self, user_id: UserId, *, agent_id: str | None, after: str, limit: int) -> list[Canvas]:
        """By id, those above `after`; of their specs the mode alone, and no state."""
        ...

    async def change(self, user_id: UserId, canvas_id: CanvasId, decide: Decide, *, seconds: float = 0) -> Outcome | None:
        """What `decide` says of the canvas as it is, with its events, in one transaction under the canvas's lock. CV-44

        None: there is no such canvas. Raises what `decide` refuses with; then nothing was stored. `decide` may be called on any
        thread, and must be quick: nobody else changes this canvas meanwhile. An opened view, or the hold on an
        execution that runs, is over after `seconds`. Raises `Repeated` and `Overtaken` for the step of an execution that cannot be made.
        """
        ...

    async def delete(self, user_id: UserId, canvas_id: CanvasId, check: Decide) -> list[str] | None:
        """With all that belongs to it, unless `check` raises. The keys of its blobs; None: there was no such canvas."""
        ...

    async def unknown_assets(self, keys: Mapping[str, datetime], older_than_seconds: float) -> list[str]:
        """Those made so long ago that belong to no asset."""
        ...

    async def old_logs(self, older_than_seconds: float, after: LogPlace, limit: int) -> OldLogs:
        """Of the next `limit` canvases of all users, those whose logs begin with events that are so old."""
        ...

    async def shorten(self, user_id: UserId, canvas_id: CanvasId, older_than_seconds: float, step: int) -> int:
        """Drop at most `step` events that are so old from the beginning of its log; how many. The last event stays."""
        ...

    async def renew_views(self, connection_ids: Sequence[str], view_seconds: float) -> None: ...

    async def views_of(self, connection_id: str) -> list[tuple[UserId, CanvasId, View]]: ...

    async def expired_views(self, limit: int) -> list[tuple[UserId, CanvasId, View]]: ...


class CanvasActionStore(Protocol):
    """Executions of canvases' actions, and the jobs that run by themselves. An execution goes on by a step of `CanvasStore.change`."""

    async def get(self, user_id: UserId, event_id: str) -> Execution | None: ...

    async def of_request(self, user_id: UserId, canvas_id: CanvasId, request_id: str) -> Execution | None: ...

    async def list_executions(
        self, user_id: UserId, canvas_id: CanvasId, *, statuses: Sequence[ExecutionStatus], before: str | None, limit: int
    ) -> list[Execution]:
        """Newest first; `before` is the `event_id` to go on below."""
        ...

    async def renew(self, owner_id: str, event_ids: Sequence[str], seconds: float) -> set[str]:
        """These are at work; those of them that still are to. What else is said to run there does not: its beginning was lost on the way."""
        ...

    async def lost(self, owner_ids: Sequence[str], asked_seconds: float, limit: int) -> list[Execution]:
        """What is said to run and does not: its instance has not renewed in time, or is one of these. And what was asked so long ago."""
        ...

    async def take_up(self, lost: Execution, owner_ids: Sequence[str], owner_id: str, seconds: float) -> Awaited | None:
        """What is lost is this owner's from now on, where a run was started for it; None: there is none, or it is not lost any more."""
        ...

    async def others_at_work(self, owner_id: str) -> list[str]: ...

    async def prune(self, older_than_seconds: float) -> int:
        """Some of the records that ended longer ago; how many."""
        ...

    async def claim_refreshes(self, owner_id: str, room: int, seconds: float, *, at_work: Collection[Job], unwatched: bool) -> list[Due]:
        """Take up to `room` jobs whose time has come and that nobody runs; `at_work` runs here, whatever its hold says. X9

        A job that is only for whoever looks, and every job unless `unwatched`, rests while its canvas has no live view.
        """
        ...

    async def next_refresh(self, *, unwatched: bool) -> float | None:
        """In how many seconds the next job is due that nobody runs and that does not rest; None: there is none."""
        ...

    async def renew_refreshes(self, owner_id: str, jobs: Collection[Job], seconds: float) -> None:
        """These are at work. What else is held there is not: it is due again when its hold runs out."""
        ...

    async def pull_in_refreshes(self, seconds: float) -> None:
        """After the clock was set back: no job waits longer than it was put off, and none is held longer than `seconds`."""
        ...

    async def settle_refresh(
        self, owner_id: str, due: Due, *, failures: int, delay: float, error: Mapping[str, Any] | None = None
    ) -> None: ...


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

    async def request_cancel(
        self, user_id: UserId, run_id: RunId, closing: Sequence[Envelope] | None, answer: Message | None = None
    ) -> CancelAnswer | None:
        """A queued run ends here and now with the `closing` events and its `answer`; a running one is flagged; an ended one stays. RX-12, RS-37

        Without `closing`, which nobody could say of a run that was running, one that is queued now is only answered: look again.
        """
        ...

    async def claim_queued(
        self,
        worker_id: WorkerId,
        room: int,
        seconds: float,
        after_turn: int,
        opening: Envelope | None = None,
        *,
        prefer_seconds: float = 0,
    ) -> list[Claim]:
        """Take up to `room` runs whose turn came after `after_turn`, oldest turn first. RX-22

        `opening` is written into each log by the claim itself, with the run's id and its attempt filled in. A run whose turn came less
        than `prefer_seconds` ago is left to the worker that it prefers. SB-12
        """
        ...

    async def claim_expired(
        self, worker_id: WorkerId, room: int, seconds: float, *, last_chance: bool | None = None, opening: Envelope | None = None
    ) -> list[Claim]:
        """Take up to `room` runs whose worker did not renew in time: only, or none of, those on their last attempt. RX-37

        `opening` is as above, and left out where every attempt was lost: such a run does not start again.
        """
        ...

    async def claim_unheard(self, worker_id: WorkerId, heard: Collection[RunId], seconds: float, *, opened: bool) -> list[Claim]:
        """What this worker has claimed without hearing so, because the answer was lost: the same attempts, untouched, pushed out. RX-49

        `heard` are the runs it knows that it holds; `opened` says whether its claims come with an opening.
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


class AuditStore(Protocol):
    """The audit chain: only ever added to, behind its one end."""

    async def append(self, entries: Sequence[Entry]) -> None:
        """All of them, next to each other and in this order; durable when it returns. CC-06"""
        ...

    async def end(self) -> End: ...

    async def after(self, seq: int, last: int, limit: int) -> list[Link]:
        """In the chain's order, from above `seq` up to `last`."""
        ...

    async def list_records(
        self,
        *,
        action: str | None,
        storage_class: StorageClass | None,
        since: datetime | None,
        until: datetime | None,
        before: int | None,
        limit: int,
    ) -> list[Link]:
        """Newest first; `since` belongs to it, `until` does not; `before` is the `seq` to go on below."""
        ...


class BoardStore(Protocol):
    """The boards of runs. A write, its version and its event in the run's log are one transaction under the run's lock."""

    async def write(self, write: BoardWrite, claim: Claim | None = None) -> Written | None:
        """None: there is no such run of this user, or the claim is no longer the run's; nothing was stored. CC-09, CC-16

        Raises what `BoardWrite.next_version` refuses with.
        """
        ...

    async def read(self, user_id: UserId, run_id: RunId, board: Board, *, edge_id: str | None, key: str | None) -> list[BoardValue] | None:
        """By edge and key, each of which may be left open; None: there is no such run of this user."""
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

    async def use(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        """Runs until done or cancelled; a cancelled tool leaves nothing running. Raises `ToolFailed`."""
        ...


class ToolSource(Protocol):
    """Others who offer tools, such as the machines that are connected."""

    async def definitions(self, user_id: UserId) -> Sequence[ToolDefinition]: ...

    async def find(self, user_id: UserId, name: str) -> Tool | None:
        """The tool of exactly this name, if it is there now."""
        ...


class ArtifactStore(Protocol):
    """The rows of artifacts: whose they are, where their bytes lie, and what refers to them."""

    async def claim(self, user_id: UserId, new: Sequence[NewArtifact]) -> list[Artifact]:
        """The rows of these, made or touched: no sweep takes them for now."""
        ...

    async def withdraw(self, user_id: UserId, begun: ArtifactId) -> None:
        """Remove a row that was claimed and has no blob."""
        ...

    async def settle(self, user_id: UserId, begun: ArtifactId, new: NewArtifact, lost_key: str | None) -> Artifact | None:
        """The blob of the row that was claimed as `begun` turned out to be this content; None: that row was swept meanwhile.

        The row of the content gets the blob, unless it has one already, and another one than `lost_key`.
        """
        ...

    async def mark_stored(self, user_id: UserId, put: Sequence[Artifact]) -> set[ArtifactId]:
        """Their blobs are there; without those whose row has gone meanwhile, or has another blob."""
        ...

    async def get(self, user_id: UserId, artifact_id: ArtifactId) -> Artifact | None:
        """Only if it is stored."""
        ...

    async def refer(
        self, user_id: UserId, artifact_ids: Sequence[ArtifactId], *, run_id: RunId | None = None, canvas_id: CanvasId | None = None
    ) -> None:
        """Kept as long as the run or the canvas; ids of nothing are passed over."""
        ...

    async def sweep(self, after: Place, older_than_seconds: float, limit: int) -> Swept:
        """Look at `limit` rows and remove those that nothing refers to and nobody touched for so long."""
        ...

    async def unknown_blobs(self, keys: Mapping[str, datetime], older_than_seconds: float) -> list[str]:
        """Those made so long ago that belong to no row."""
        ...


class Keeper(Protocol):
    """Keeps what is too heavy for a log, and gives it back: the artifacts, as the other stories need them."""

    async def keep(self, user_id: UserId, moved: Sequence[Moved]) -> None:
        """Durable when it returns: what refers to these may now be stored."""
        ...

    async def read(self, user_id: UserId, artifact_id: ArtifactId) -> bytes:
        """The exact bytes, or an error: never others."""
        ...


class Blobs(Protocol):
    async def put(self, key: str, data: bytes | AsyncIterable[bytes], *, size_limit: int | None = None) -> int: ...

    async def get(self, key: str) -> bytes: ...

    async def read(self, key: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]: ...

    async def size(self, key: str) -> int | None: ...

    async def delete(self, key: str) -> None: ...

    def list(self, prefix: str) -> AsyncIterator[str]: ...

    async def check(self) -> None: ...
