"""Tool nodes and calls across instances in Postgres. The rules are in the statements of `sql/postgres/nodes.sql`."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from easel.core.tool.call import NewCall, TakenCall
from easel.core.tool.node import Node, RegisteredNode
from easel.ids import CallId, UserId
from easel.stores import named_sql
from easel.stores.rows.nodes import node_columns, to_call, to_node

if TYPE_CHECKING:
    from easel.stores.postgres.database import Connection, PostgresDatabase

SQL = named_sql.load("postgres", "nodes")


class PostgresNodes:
    def __init__(self, database: "PostgresDatabase") -> None:
        self._database = database

    # -- who is there ----------------------------------------------------------------------------------------------

    async def register(self, node: Node, *, seconds: float, max_nodes: int) -> RegisteredNode | None:
        columns = node_columns(node)
        async with self._database.connection() as lent, lent.transaction():
            # A statement of its own: the next ones must see what was committed while this one waited.
            older = await _rows(lent, "lock_node", columns)
            if (await _rows(lent, "count_nodes", columns))[0]["others"] >= max_nodes:
                return None
            [entered] = await _rows(lent, "enter_node", {**columns, "seconds": seconds})
            lost = [call for row in older for call in await _lost(lent, row["connection_id"])]
            return RegisteredNode(entered["connected_at"], lost)

    async def register_again(self, node: Node, connected_at: datetime, *, seconds: float) -> bool:
        return bool(
            await self._database.rows(
                SQL["enter_node_again"], **node_columns(node), connected_at=connected_at, seconds=seconds
            )
        )

    async def unregister(self, connection_id: str) -> list[CallId]:
        async with self._database.connection() as lent, lent.transaction():
            await _rows(lent, "leave_node", {"connection_id": connection_id})
            return await _lost(lent, connection_id)

    async def renew(self, connection_ids: Sequence[str], seconds: float) -> set[str]:
        rows = await self._database.rows(
            SQL["renew_nodes"], connection_ids=list(connection_ids), seconds=seconds
        )
        return {row["connection_id"] for row in rows}

    async def list_nodes(self, user_id: UserId) -> list[Node]:
        return [to_node(row) for row in await self._database.rows(SQL["list_nodes"], user_id=user_id)]

    # -- calls -----------------------------------------------------------------------------------------------------

    async def place_call(self, new: NewCall) -> bool:
        placed = await self._database.row(
            SQL["place_call"],
            call_id=new.call_id,
            user_id=new.user_id,
            target=new.target,
            method=new.method,
            params=new.params,
            seconds=new.seconds,
            caller_ttl_seconds=new.caller_ttl_seconds,
        )
        return placed is not None

    async def take_calls(self, targets: Sequence[str]) -> list[TakenCall]:
        return [to_call(row) for row in await self._database.rows(SQL["take_calls"], targets=list(targets))]

    async def save_answer(self, call_id: CallId, target: str, answer: str) -> bool:
        return (
            await self._database.row(SQL["answer_call"], call_id=call_id, target=target, answer=answer)
            is not None
        )

    async def cancel_call(self, user_id: UserId, call_id: CallId) -> str | None:
        whose = {"user_id": user_id, "call_id": call_id}
        if await self._database.row(SQL["drop_call"], **whose):
            return None
        row = await self._database.row(SQL["cancel_call"], **whose)
        return row["target"] if row else None

    async def renew_calls(self, call_ids: Sequence[CallId], seconds: float) -> set[CallId]:
        rows = await self._database.rows(SQL["renew_calls"], call_ids=list(call_ids), seconds=seconds)
        return {CallId(row["call_id"]) for row in rows}

    async def take_cancelled(self, targets: Sequence[str], *, include_expired: bool) -> list[CallId]:
        rows = await self._database.rows(SQL["withdrawn_calls"], targets=list(targets), unheard=include_expired)
        return [CallId(row["call_id"]) for row in rows]

    async def collect_answers(self, call_ids: Sequence[CallId]) -> dict[CallId, str | None]:
        rows = await self._database.rows(SQL["collect_calls"], call_ids=list(call_ids))
        return {CallId(row["call_id"]): row["answer"] for row in rows}

    async def sweep(self, older_than_seconds: float) -> None:
        await self._database.rows(SQL["sweep_calls"], seconds=older_than_seconds)
        await self._database.rows(SQL["sweep_nodes"], seconds=older_than_seconds)


async def _rows(lent: "Connection", name: str, given: dict[str, Any]) -> list[Any]:
    return await lent.fetch(SQL[name].sql, *SQL[name].arguments(given))


async def _lost(lent: "Connection", connection_id: str) -> list[CallId]:
    return [CallId(row["call_id"]) for row in await _rows(lent, "lose_calls", {"target": connection_id})]
