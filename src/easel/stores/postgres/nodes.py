"""Tool nodes, and calls to tool nodes from other instances, in Postgres.

The rules are in the statements of `sql/postgres/nodes.sql`.
"""

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

    # -- connections -----------------------------------------------------------------------------------------

    async def register(self, node: Node, *, seconds: float, max_nodes: int) -> RegisteredNode | None:
        columns = node_columns(node)
        async with self._database.connection() as connection, connection.transaction():
            # A separate statement: the next ones must see the changes that were committed while this one
            # waited for the lock.
            older = await _rows(connection, "lock_node", columns)
            if (await _rows(connection, "count_nodes", columns))[0]["others"] >= max_nodes:
                return None
            [registered] = await _rows(connection, "register_node", {**columns, "seconds": seconds})
            failed = [call for row in older for call in await _fail_calls(connection, row["connection_id"])]
            return RegisteredNode(registered["connected_at"], failed)

    async def register_again(self, node: Node, connected_at: datetime, *, seconds: float) -> bool:
        return bool(
            await self._database.rows(
                SQL["register_node_again"], **node_columns(node), connected_at=connected_at, seconds=seconds
            )
        )

    async def unregister(self, connection_id: str) -> list[CallId]:
        async with self._database.connection() as connection, connection.transaction():
            await _rows(connection, "unregister_node", {"connection_id": connection_id})
            return await _fail_calls(connection, connection_id)

    async def renew(self, connection_ids: Sequence[str], seconds: float) -> set[str]:
        rows = await self._database.rows(
            SQL["renew_nodes"], connection_ids=list(connection_ids), seconds=seconds
        )
        return {row["connection_id"] for row in rows}

    async def list_nodes(self, user_id: UserId) -> list[Node]:
        return [to_node(row) for row in await self._database.rows(SQL["list_nodes"], user_id=user_id)]

    # -- calls -----------------------------------------------------------------------------------------------

    async def place_call(self, new: NewCall) -> bool:
        placed = await self._database.row(
            SQL["place_call"],
            call_id=new.call_id,
            user_id=new.user_id,
            target=new.target,
            method=new.method,
            params=new.params,
            timeout_seconds=new.timeout_seconds,
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
        ids = {"user_id": user_id, "call_id": call_id}
        if await self._database.row(SQL["delete_call"], **ids):
            return None
        row = await self._database.row(SQL["cancel_call"], **ids)
        return row["target"] if row else None

    async def renew_calls(self, call_ids: Sequence[CallId], seconds: float) -> set[CallId]:
        rows = await self._database.rows(SQL["renew_calls"], call_ids=list(call_ids), seconds=seconds)
        return {CallId(row["call_id"]) for row in rows}

    async def take_cancelled(self, targets: Sequence[str], *, include_expired: bool) -> list[CallId]:
        rows = await self._database.rows(
            SQL["take_cancelled_calls"], targets=list(targets), unheard=include_expired
        )
        return [CallId(row["call_id"]) for row in rows]

    async def collect_answers(self, call_ids: Sequence[CallId]) -> dict[CallId, str | None]:
        rows = await self._database.rows(SQL["collect_answers"], call_ids=list(call_ids))
        return {CallId(row["call_id"]): row["answer"] for row in rows}

    async def sweep(self, older_than_seconds: float) -> None:
        await self._database.rows(SQL["sweep_calls"], seconds=older_than_seconds)
        await self._database.rows(SQL["sweep_nodes"], seconds=older_than_seconds)


async def _rows(connection: "Connection", name: str, arguments: dict[str, Any]) -> list[Any]:
    return await connection.fetch(SQL[name].sql, *SQL[name].arguments(arguments))


async def _fail_calls(connection: "Connection", connection_id: str) -> list[CallId]:
    return [
        CallId(row["call_id"]) for row in await _rows(connection, "fail_calls", {"target": connection_id})
    ]
