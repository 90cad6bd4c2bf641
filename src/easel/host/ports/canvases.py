"""What canvases and their actions need from outside: their stores."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from easel.core.canvas.canvas import Canvas, CanvasSnapshot, Decide, NewCanvas, Outcome, View
from easel.core.canvas.execution import Execution, ExecutionStatus, StartedRun
from easel.core.canvas.refresh import Due, Job
from easel.core.canvas.retention import LogKey, OldLogs
from easel.core.stream.envelope import Envelope
from easel.host.ports.streams import LogSource
from easel.ids import CanvasId, UserId


class CanvasStore(LogSource, Protocol):
    """Canvases, their logs, and the rows of their assets and views."""

    async def create(self, new: NewCanvas, event: Envelope) -> CanvasSnapshot | None:
        """With the first event of its log. None: there is one already."""
        ...

    async def get(self, user_id: UserId, canvas_id: CanvasId) -> CanvasSnapshot | None: ...

    async def list_canvases(
        self, user_id: UserId, *, agent_id: str | None, after: str, limit: int
    ) -> list[Canvas]:
        """By id, those above `after`; of their specs the mode alone, and no state."""
        ...

    async def change(
        self, user_id: UserId, canvas_id: CanvasId, decide: Decide, *, seconds: float = 0
    ) -> Outcome | None:
        """What `decide` says of the canvas as it is, with its events, in one transaction under the canvas's lock. CV-44

        None: there is no such canvas. Raises what `decide` refuses with; then nothing was stored. `decide` may be called on any
        thread, and must be quick: nobody else changes this canvas meanwhile. An opened view, or the hold on an
        execution that runs, is over after `seconds`. Raises `Repeated` and `Overtaken` for the step of an execution that cannot be made.
        """
        ...

    async def delete(self, user_id: UserId, canvas_id: CanvasId, check: Decide) -> list[str] | None:
        """With all that belongs to it, unless `check` raises. The keys of its blobs; None: there was no such canvas."""
        ...

    async def find_unknown_assets(self, keys: Mapping[str, datetime], older_than_seconds: float) -> list[str]:
        """Those made so long ago that belong to no asset."""
        ...

    async def find_old_logs(self, older_than_seconds: float, after: LogKey, limit: int) -> OldLogs:
        """Of the next `limit` canvases of all users, those whose logs begin with events that are so old."""
        ...

    async def trim_log(
        self, user_id: UserId, canvas_id: CanvasId, older_than_seconds: float, step: int
    ) -> int:
        """Drop at most `step` events that are so old from the beginning of its log; how many. The last event stays."""
        ...

    async def renew_views(self, connection_ids: Sequence[str], view_ttl_seconds: float) -> None: ...

    async def list_views(self, connection_id: str) -> list[tuple[UserId, CanvasId, View]]: ...

    async def list_expired_views(self, limit: int) -> list[tuple[UserId, CanvasId, View]]: ...


class CanvasActionStore(Protocol):
    """Executions of canvases' actions, and the jobs that run by themselves. An execution goes on by a step of `CanvasStore.change`."""

    async def get(self, user_id: UserId, event_id: str) -> Execution | None: ...

    async def find_by_request_id(
        self, user_id: UserId, canvas_id: CanvasId, request_id: str
    ) -> Execution | None: ...

    async def list_executions(
        self,
        user_id: UserId,
        canvas_id: CanvasId,
        *,
        statuses: Sequence[ExecutionStatus],
        before: str | None,
        limit: int,
    ) -> list[Execution]:
        """Newest first; `before` is the `event_id` to go on below."""
        ...

    async def renew(self, owner_id: str, event_ids: Sequence[str], seconds: float) -> set[str]:
        """These are at work; those of them that still are to. What else is said to run there does not: its beginning was lost on the way."""
        ...

    async def find_orphaned(
        self, owner_ids: Sequence[str], asked_seconds: float, limit: int
    ) -> list[Execution]:
        """What is said to run and does not: its instance has not renewed in time, or is one of these. And what was asked so long ago."""
        ...

    async def adopt(
        self, orphan: Execution, owner_ids: Sequence[str], owner_id: str, seconds: float
    ) -> StartedRun | None:
        """What is lost is this owner's from now on, where a run was started for it; None: there is none, or it is not lost any more."""
        ...

    async def other_active_owners(self, owner_id: str) -> list[str]: ...

    async def prune(self, older_than_seconds: float) -> int:
        """Some of the records that ended longer ago; how many."""
        ...

    async def claim_refreshes(
        self, owner_id: str, capacity: int, seconds: float, *, running: Collection[Job], unwatched: bool
    ) -> list[Due]:
        """Take up to `capacity` jobs whose time has come and that nobody runs; `running` runs here, whatever its hold says. X9

        A job that is only for whoever looks, and every job unless `unwatched`, rests while its canvas has no live view.
        """
        ...

    async def next_refresh(self, *, unwatched: bool) -> float | None:
        """In how many seconds the next job is due that nobody runs and that does not rest; None: there is none."""
        ...

    async def renew_refreshes(self, owner_id: str, jobs: Collection[Job], seconds: float) -> None:
        """These are at work. What else is held there is not: it is due again when its hold runs out."""
        ...

    async def finish_refresh(
        self, owner_id: str, due: Due, *, failures: int, delay: float, error: Mapping[str, Any] | None = None
    ) -> None: ...
