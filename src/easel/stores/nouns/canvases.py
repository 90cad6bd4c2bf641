"""Canvases: what both databases have in common. The rules are in the statements of `canvases.sql`.

A subclass says how its database stores and changes a canvas, and reads its log.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from easel.core.action.execution import DuplicateRequest, StaleTransition, Transition
from easel.core.canvas.canvas import Canvas, View
from easel.core.canvas.retention import LogKey, OldLogs
from easel.core.stream.json_text import to_json
from easel.core.stream.log import Bounds
from easel.ids import AccountId, CanvasId, scoped_key
from easel.stores.nouns.statements import Row, Statements, Steps
from easel.stores.rows.canvases import to_canvas, to_old_logs, transition_arguments
from easel.stores.rows.runs import split_key


class SqlCanvases:
    def __init__(self, statements: Statements) -> None:
        self._sql = statements

    async def list_canvases(
        self, account_id: AccountId, *, agent_id: str | None, after: str, limit: int
    ) -> list[Canvas]:
        rows = await self._sql.rows(
            "list_canvases" if agent_id is None else "list_agent_canvases",
            account_id=account_id,
            agent_id=agent_id,
            after=after,
            limit=limit,
        )
        return [to_canvas(row) for row in rows]

    async def find_at(self, account_id: AccountId, *, agent_id: str | None, offset: int) -> CanvasId | None:
        name = "find_canvas_at" if agent_id is None else "find_agent_canvas_at"
        row = await self._sql.row(name, account_id=account_id, agent_id=agent_id, offset=offset)
        return CanvasId(row["canvas_id"]) if row else None

    async def count(self, account_id: AccountId, *, agent_id: str | None, limit: int) -> int:
        name = "count_canvases" if agent_id is None else "count_agent_canvases"
        [row] = await self._sql.rows(name, account_id=account_id, agent_id=agent_id, limit=limit)
        return row["found"]

    async def get_agent(self, account_id: AccountId, canvas_id: CanvasId) -> str | None:
        row = await self._sql.row("get_canvas_agent", account_id=account_id, canvas_id=canvas_id)
        return row["agent_id"] if row else None

    # -- assets and views ------------------------------------------------------------------------------------

    async def find_unknown_assets(self, keys: Mapping[str, datetime], older_than_seconds: float) -> list[str]:
        made_at = to_json([[key, created_at.timestamp()] for key, created_at in keys.items()])
        rows = await self._sql.rows("find_unknown_assets", keys=made_at, seconds=older_than_seconds)
        return [row["blob_key"] for row in rows]

    async def renew_views(self, connection_ids: Sequence[str], view_ttl_seconds: float) -> None:
        await self._sql.rows("renew_views", connection_ids=list(connection_ids), seconds=view_ttl_seconds)

    async def list_views(self, connection_id: str) -> list[tuple[AccountId, CanvasId, View]]:
        return [_to_view(row) for row in await self._sql.rows("list_views", connection_id=connection_id)]

    async def list_expired_views(self, limit: int) -> list[tuple[AccountId, CanvasId, View]]:
        return [_to_view(row) for row in await self._sql.rows("list_expired_views", limit=limit)]

    # -- the log ---------------------------------------------------------------------------------------------

    async def find_old_logs(self, older_than_seconds: float, after: LogKey, limit: int) -> OldLogs:
        page = {"account_id": after[0], "canvas_id": after[1], "limit": limit}
        return to_old_logs(await self._sql.rows("find_old_logs", seconds=older_than_seconds, **page), limit)

    async def bounds(self, account_id: AccountId, canvas_id: str, /) -> Bounds | None:
        row = await self._sql.row("canvas_bounds", account_id=account_id, canvas_id=canvas_id)
        return Bounds(row["oldest_seq"], row["last_seq"], ended=False) if row else None

    async def heads(self, keys: Sequence[str], /) -> dict[str, int]:
        rows = await self._sql.rows("canvas_heads", canvases=to_json([split_key(key) for key in keys]))
        return {scoped_key(row["account_id"], row["canvas_id"]): row["last_seq"] for row in rows}


def store_transition(transition: Transition, stored: Row, seconds: float) -> Steps[None]:
    """Store a transition of an execution. `stored` has the revision and the log position of its canvas."""
    execution, limit = transition.execution, transition.pending_limit
    if limit is not None:
        ids = {"account_id": execution.account_id, "canvas_id": execution.canvas_id}
        [pending] = yield "count_pending_executions", {**ids, "seconds": limit.seconds}
        limit.check(pending["waiting"])
    arguments: dict[str, Any] = transition_arguments(transition, stored["revision"], stored["last_seq"])
    is_new = transition.from_status is None
    name = "start_execution" if is_new else "advance_execution"
    if not (yield name, {**arguments, "seconds": seconds}):
        raise DuplicateRequest if is_new else StaleTransition


def _to_view(row: Row) -> tuple[AccountId, CanvasId, View]:
    return (
        AccountId(row["account_id"]),
        CanvasId(row["canvas_id"]),
        View(row["view_id"], row["client_id"], row["connection_id"]),
    )
