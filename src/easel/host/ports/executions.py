"""Port of executions and refresh jobs: their store."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from easel.core.action.execution import Execution, ExecutionStatus, StartedRun
from easel.core.canvas.refresh import Due, Job
from easel.ids import AccountId, CanvasId, UserId


class ExecutionStore(Protocol):
    """Executions of actions, and refresh jobs. `CanvasStore.change` makes the transitions of an execution."""

    async def get(self, account_id: AccountId, event_id: str) -> Execution | None: ...

    async def find_by_request_id(
        self, account_id: AccountId, canvas_id: CanvasId, request_id: str
    ) -> Execution | None: ...

    async def list_executions(
        self,
        account_id: AccountId,
        canvas_id: CanvasId,
        *,
        statuses: Sequence[ExecutionStatus],
        before: str | None,
        limit: int,
    ) -> list[Execution]:
        """Return executions below the `event_id` in `before`, newest first."""
        ...

    async def renew(self, owner_id: str, event_ids: Sequence[str], seconds: float) -> set[str]:
        """Renew the claims on these executions. Returns the event ids that this owner still has a claim on.

        Any other claim of this owner expires now, because the reply to the start of its execution was lost.
        """
        ...

    async def find_orphaned(self, owner_ids: Sequence[str], limit: int) -> list[Execution]:
        """Return orphaned executions, and those whose confirmation was not answered in time.

        A running execution is orphaned if its claim has expired or belongs to one of `owner_ids`.
        """
        ...

    async def has_other_approver(self, account_id: AccountId, user_id: UserId) -> bool:
        """Return whether a team has another enabled member who may approve. RS-77"""
        ...

    async def adopt(
        self, orphan: Execution, owner_ids: Sequence[str], owner_id: str, seconds: float
    ) -> StartedRun | None:
        """Claim an orphaned execution that has started a run, and return that run.

        Returns None if it has started no run or is not orphaned.
        """
        ...

    async def other_active_owners(self, owner_id: str) -> list[str]: ...

    async def prune(self, older_than_seconds: float) -> int:
        """Delete a batch of executions that ended at least this long ago. Returns how many were deleted."""
        ...

    async def claim_refreshes(
        self, owner_id: str, capacity: int, seconds: float, *, running: Collection[Job], unwatched: bool
    ) -> list[Due]:
        """Claim up to `capacity` due jobs that have no claim. X9

        A job in `running` is not claimed again, even if its claim has expired. A job that needs a viewer, and
        every job unless `unwatched`, is paused while its canvas has no view.
        """
        ...

    async def next_refresh(self, *, unwatched: bool) -> float | None:
        """Return the seconds until the next job that is neither claimed nor paused is due, or None."""
        ...

    async def renew_refreshes(self, owner_id: str, jobs: Collection[Job], seconds: float) -> None:
        """Renew the claims on these jobs. Other claims of this owner are left to expire."""
        ...

    async def finish_refresh(
        self, owner_id: str, due: Due, *, failures: int, delay: float, error: Mapping[str, Any] | None = None
    ) -> None: ...
