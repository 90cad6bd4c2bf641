"""Executions of canvas actions and refresh jobs in SQLite.

`canvases` stores the transitions of executions, in the transaction that changes their canvas.
"""

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from easel.core.action.execution import Execution, ExecutionStatus, StartedRun
from easel.core.canvas.refresh import Due, Job
from easel.core.stream.json_text import to_json
from easel.ids import AccountId, CanvasId
from easel.stores import named_sql
from easel.stores.rows.canvases import to_execution
from easel.stores.sqlite.times import microseconds, to_datetime

if TYPE_CHECKING:
    from easel.stores.sqlite.database import SqliteDatabase

SQL = named_sql.load("sqlite", "canvas_actions")


class SqliteCanvasActions:
    def __init__(self, database: "SqliteDatabase") -> None:
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
            statuses=to_json([status.value for status in statuses]),
            before=before,
            limit=limit,
        )

    async def renew(self, owner_id: str, event_ids: Sequence[str], seconds: float) -> set[str]:
        until = self._database.clock() + microseconds(seconds)
        rows = await self._write(
            "renew_executions", owner_id=owner_id, event_ids=to_json(list(event_ids)), until=until
        )
        return {row["event_id"] for row in rows}

    async def find_orphaned(
        self, owner_ids: Sequence[str], asked_seconds: float, limit: int
    ) -> list[Execution]:
        asked_before = self._database.clock() - microseconds(asked_seconds)
        return await self._fetch_all(
            "orphaned_executions", owner_ids=to_json(list(owner_ids)), asked_before=asked_before, limit=limit
        )

    async def adopt(
        self, orphan: Execution, owner_ids: Sequence[str], owner_id: str, seconds: float
    ) -> StartedRun | None:
        rows = await self._write(
            "adopt_execution",
            account_id=orphan.account_id,
            event_id=orphan.event_id,
            owner_ids=to_json(list(owner_ids)),
            owner_id=owner_id,
            **self._until(seconds),
        )
        return StartedRun(rows[0]["run_id"], rows[0]["seconds"]) if rows else None

    async def other_active_owners(self, owner_id: str) -> list[str]:
        return [row["owner_id"] for row in await self._read("other_active_owners", owner_id=owner_id)]

    async def prune(self, older_than_seconds: float) -> int:
        return len(
            await self._write(
                "prune_executions", before=self._database.clock() - microseconds(older_than_seconds)
            )
        )

    # -- refresh jobs ----------------------------------------------------------------------------------------

    async def claim_refreshes(
        self, owner_id: str, capacity: int, seconds: float, *, running: Collection[Job], unwatched: bool
    ) -> list[Due]:
        rows = await self._write(
            "claim_refreshes",
            owner_id=owner_id,
            capacity=capacity,
            running=to_json(list(running)),
            unwatched=unwatched,
            **self._until(seconds),
        )
        return [Due(**dict(row)) for row in rows]

    async def next_refresh(self, *, unwatched: bool) -> float | None:
        [row] = await self._read("next_refresh", now=self._database.clock(), unwatched=unwatched)
        return row["seconds"]

    async def renew_refreshes(self, owner_id: str, jobs: Collection[Job], seconds: float) -> None:
        until = self._database.clock() + microseconds(seconds)
        await self._write("renew_refreshes", owner_id=owner_id, jobs=to_json(list(jobs)), until=until)

    async def finish_refresh(
        self, owner_id: str, due: Due, *, failures: int, delay: float, error: Mapping[str, Any] | None = None
    ) -> None:
        now = self._database.clock()
        await self._write(
            "finish_refresh",
            owner_id=owner_id,
            account_id=due.account_id,
            canvas_id=due.canvas_id,
            refresh_id=due.refresh_id,
            failures=failures,
            error=None if error is None else to_json(error),
            next_at=now + microseconds(delay),
            now=now,
        )

    def _until(self, seconds: float) -> dict[str, int]:
        now = self._database.clock()
        return {"now": now, "until": now + microseconds(seconds)}

    async def _fetch_one(self, name: str, **arguments: Any) -> Execution | None:
        return next(iter(await self._fetch_all(name, **arguments)), None)

    async def _fetch_all(self, name: str, **arguments: Any) -> list[Execution]:
        return [
            to_execution(row, to_datetime)
            for row in await self._read(name, now=self._database.clock(), **arguments)
        ]

    async def _read(self, name: str, **arguments: Any) -> list[Any]:
        return await self._database.read(lambda connection: _rows(connection, name, **arguments))

    async def _write(self, name: str, **arguments: Any) -> list[Any]:
        return await self._database.write(lambda connection: _rows(connection, name, **arguments))


def _rows(connection: sqlite3.Connection, name: str, **arguments: Any) -> list[Any]:
    return connection.execute(SQL[name].sql, arguments).fetchall()
