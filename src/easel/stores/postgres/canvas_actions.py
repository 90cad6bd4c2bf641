"""Executions of canvas actions and refresh jobs in Postgres.

`canvases` stores the transitions of executions, in the transaction that changes their canvas.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from easel.core.action.execution import Execution, ExecutionStatus, StartedRun
from easel.core.canvas.refresh import Due, Job
from easel.core.stream.json_text import to_json
from easel.ids import AccountId, CanvasId
from easel.stores import named_sql
from easel.stores.rows.canvases import to_execution

if TYPE_CHECKING:
    from easel.stores.postgres.database import PostgresDatabase

SQL = named_sql.load("postgres", "canvas_actions")


class PostgresCanvasActions:
    def __init__(self, database: "PostgresDatabase") -> None:
        self._database = database

    async def get(self, account_id: AccountId, event_id: str) -> Execution | None:
        return await self._fetch_one("get_execution", account_id=account_id, event_id=event_id)

    async def find_by_request_id(
        self, account_id: AccountId, canvas_id: CanvasId, request_id: str
    ) -> Execution | None:
        return await self._fetch_one(
            "execution_by_request", account_id=account_id, canvas_id=canvas_id, request_id=request_id
        )

    async def list_executions(
        self,
        account_id: AccountId,
        canvas_id: CanvasId,
        *,
        statuses: Sequence[ExecutionStatus],
        before: str | None,
        limit: int,
    ) -> list[Execution]:
        return await self._fetch_all(
            "list_executions_by_status" if statuses else "list_executions",
            account_id=account_id,
            canvas_id=canvas_id,
            statuses=[status.value for status in statuses],
            before=before,
            limit=limit,
        )

    async def renew(self, owner_id: str, event_ids: Sequence[str], seconds: float) -> set[str]:
        rows = await self._database.rows(
            SQL["renew_executions"], owner_id=owner_id, event_ids=list(event_ids), seconds=seconds
        )
        return {row["event_id"] for row in rows}

    async def find_orphaned(
        self, owner_ids: Sequence[str], asked_seconds: float, limit: int
    ) -> list[Execution]:
        return await self._fetch_all(
            "orphaned_executions", owner_ids=list(owner_ids), asked_seconds=asked_seconds, limit=limit
        )

    async def adopt(
        self, orphan: Execution, owner_ids: Sequence[str], owner_id: str, seconds: float
    ) -> StartedRun | None:
        ids = {"account_id": orphan.account_id, "event_id": orphan.event_id, "owner_ids": list(owner_ids)}
        row = await self._database.row(SQL["adopt_execution"], owner_id=owner_id, seconds=seconds, **ids)
        return StartedRun(row["run_id"], row["seconds"]) if row else None

    async def other_active_owners(self, owner_id: str) -> list[str]:
        return [
            row["owner_id"]
            for row in await self._database.rows(SQL["other_active_owners"], owner_id=owner_id)
        ]

    async def prune(self, older_than_seconds: float) -> int:
        return len(await self._database.rows(SQL["prune_executions"], seconds=older_than_seconds))

    # -- refresh jobs ----------------------------------------------------------------------------------------

    async def claim_refreshes(
        self, owner_id: str, capacity: int, seconds: float, *, running: Collection[Job], unwatched: bool
    ) -> list[Due]:
        arguments = {"owner_id": owner_id, "capacity": capacity, "seconds": seconds, "unwatched": unwatched}
        return [
            Due(**row)
            for row in await self._database.rows(SQL["claim_refreshes"], **arguments, **_named(running))
        ]

    async def next_refresh(self, *, unwatched: bool) -> float | None:
        return (await self._database.row(SQL["next_refresh"], unwatched=unwatched))["seconds"]

    async def renew_refreshes(self, owner_id: str, jobs: Collection[Job], seconds: float) -> None:
        await self._database.rows(SQL["renew_refreshes"], owner_id=owner_id, seconds=seconds, **_named(jobs))

    async def finish_refresh(
        self, owner_id: str, due: Due, *, failures: int, delay: float, error: Mapping[str, Any] | None = None
    ) -> None:
        ids = {"account_id": due.account_id, "canvas_id": due.canvas_id, "refresh_id": due.refresh_id}
        how = {"failures": failures, "error": None if error is None else to_json(error)}
        await self._database.rows(SQL["finish_refresh"], owner_id=owner_id, delay=delay, **how, **ids)

    async def _fetch_one(self, name: str, **arguments: Any) -> Execution | None:
        return next(iter(await self._fetch_all(name, **arguments)), None)

    async def _fetch_all(self, name: str, **arguments: Any) -> list[Execution]:
        return [to_execution(row) for row in await self._database.rows(SQL[name], **arguments)]


def _named(jobs: Collection[Job]) -> dict[str, list[str]]:
    return {
        "account_ids": [account_id for account_id, _, _ in jobs],
        "canvas_ids": [canvas_id for _, canvas_id, _ in jobs],
        "refresh_ids": [refresh_id for _, _, refresh_id in jobs],
    }
