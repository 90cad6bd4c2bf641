"""Executions of actions and refresh jobs. The rules are in the statements of `executions.sql`.

`canvases` stores the transitions of executions, in the transaction that changes their canvas.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from easel.core.action.execution import Execution, ExecutionStatus, StartedRun
from easel.core.canvas.refresh import Due, Job
from easel.core.stream.json_text import to_json
from easel.ids import AccountId, CanvasId, UserId
from easel.stores.nouns.statements import Statements
from easel.stores.rows.canvases import to_execution


class SqlExecutions:
    def __init__(self, statements: Statements) -> None:
        self._sql = statements

    async def get(self, account_id: AccountId, event_id: str) -> Execution | None:
        row = await self._sql.row("get_execution", account_id=account_id, event_id=event_id)
        return to_execution(row) if row else None

    async def find_by_request_id(
        self, account_id: AccountId, canvas_id: CanvasId, request_id: str
    ) -> Execution | None:
        ids = {"account_id": account_id, "canvas_id": canvas_id, "request_id": request_id}
        row = await self._sql.row("execution_by_request", **ids)
        return to_execution(row) if row else None

    async def list_executions(
        self,
        account_id: AccountId,
        canvas_id: CanvasId,
        *,
        statuses: Sequence[ExecutionStatus],
        before: str | None,
        limit: int,
    ) -> list[Execution]:
        rows = await self._sql.rows(
            "list_executions_by_status" if statuses else "list_executions",
            account_id=account_id,
            canvas_id=canvas_id,
            statuses=[status.value for status in statuses],
            before=before,
            limit=limit,
        )
        return [to_execution(row) for row in rows]

    async def renew(self, owner_id: str, event_ids: Sequence[str], seconds: float) -> set[str]:
        rows = await self._sql.rows(
            "renew_executions", owner_id=owner_id, event_ids=list(event_ids), seconds=seconds
        )
        return {row["event_id"] for row in rows}

    async def find_orphaned(self, owner_ids: Sequence[str], limit: int) -> list[Execution]:
        rows = await self._sql.rows("orphaned_executions", owner_ids=list(owner_ids), limit=limit)
        return [to_execution(row) for row in rows]

    async def adopt(
        self, orphan: Execution, owner_ids: Sequence[str], owner_id: str, seconds: float
    ) -> StartedRun | None:
        ids = {"account_id": orphan.account_id, "event_id": orphan.event_id, "owner_ids": list(owner_ids)}
        row = await self._sql.row("adopt_execution", owner_id=owner_id, seconds=seconds, **ids)
        return StartedRun(row["run_id"], row["seconds"]) if row else None

    async def has_other_approver(self, account_id: AccountId, user_id: UserId) -> bool:
        [row] = await self._sql.rows("other_approver", account_id=account_id, user_id=user_id)
        return bool(row["found"])

    async def other_active_owners(self, owner_id: str) -> list[str]:
        return [row["owner_id"] for row in await self._sql.rows("other_active_owners", owner_id=owner_id)]

    async def prune(self, older_than_seconds: float) -> int:
        return len(await self._sql.rows("prune_executions", seconds=older_than_seconds))

    # -- refresh jobs ----------------------------------------------------------------------------------------

    async def claim_refreshes(
        self, owner_id: str, capacity: int, seconds: float, *, running: Collection[Job], unwatched: bool
    ) -> list[Due]:
        rows = await self._sql.rows(
            "claim_refreshes",
            owner_id=owner_id,
            capacity=capacity,
            seconds=seconds,
            running=to_json(list(running)),
            unwatched=unwatched,
        )
        return [Due(**row) for row in rows]

    async def next_refresh(self, *, unwatched: bool) -> float | None:
        [row] = await self._sql.rows("next_refresh", unwatched=unwatched)
        return row["seconds"]

    async def renew_refreshes(self, owner_id: str, jobs: Collection[Job], seconds: float) -> None:
        await self._sql.rows("renew_refreshes", owner_id=owner_id, jobs=to_json(list(jobs)), seconds=seconds)

    async def finish_refresh(
        self, owner_id: str, due: Due, *, failures: int, delay: float, error: Mapping[str, Any] | None = None
    ) -> None:
        await self._sql.rows(
            "finish_refresh",
            owner_id=owner_id,
            account_id=due.account_id,
            canvas_id=due.canvas_id,
            refresh_id=due.refresh_id,
            failures=failures,
            delay=delay,
            error=None if error is None else to_json(error),
        )
