"""Tool nodes, and the loss of the calls to a connection that ends. The rules are in the statements."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from easel.core.stream.json_text import to_json
from easel.core.tool.definition import ToolDefinition
from easel.core.tool.node import Node, RegisteredNode, describe_taken
from easel.errors import Forbidden
from easel.ids import AccountId, CallId
from easel.stores.nouns.statements import Row, Statements, Steps


class SqlNodes:
    def __init__(self, statements: Statements) -> None:
        self._sql = statements

    async def register(self, node: Node, *, seconds: float, max_nodes: int) -> RegisteredNode | None:
        return await self._sql.transaction(_register({**_columns(node), "seconds": seconds}, max_nodes))

    async def register_again(self, node: Node, connected_at: datetime, *, seconds: float) -> bool:
        columns = {**_columns(node), "connected_at": connected_at, "seconds": seconds}
        return bool(await self._sql.rows("register_node_again", **columns))

    async def unregister(self, connection_id: str) -> list[CallId]:
        return await self._sql.transaction(_unregister(connection_id))

    async def renew(self, connection_ids: Sequence[str], seconds: float) -> set[str]:
        rows = await self._sql.rows("renew_nodes", connection_ids=list(connection_ids), seconds=seconds)
        return {row["connection_id"] for row in rows}

    async def list_nodes(self, account_id: AccountId) -> list[Node]:
        rows = await self._sql.rows("list_nodes", account_id=account_id)
        return [_to_node(row) for row in rows]

    async def sweep(self, older_than_seconds: float) -> None:
        await self._sql.rows("sweep_nodes", seconds=older_than_seconds)


def _register(columns: dict[str, Any], max_nodes: int) -> Steps[RegisteredNode | None]:
    # A separate statement: the next ones must see the changes that were committed while this one waited for
    # the lock.
    older = yield "lock_node", columns
    [count] = yield "count_nodes", columns
    if count["others"] >= max_nodes:
        return None
    registered = yield "register_node", columns
    if not registered:
        raise Forbidden(problem=describe_taken(columns["node_id"]))
    failed: list[CallId] = []
    for row in older:
        failed += _call_ids((yield "fail_calls", {"target": row["connection_id"]}))
    return RegisteredNode(registered[0]["connected_at"], failed)


def _unregister(connection_id: str) -> Steps[list[CallId]]:
    yield "unregister_node", {"connection_id": connection_id}
    return _call_ids((yield "fail_calls", {"target": connection_id}))


def _call_ids(rows: Sequence[Row]) -> list[CallId]:
    return [CallId(row["call_id"]) for row in rows]


def _columns(node: Node) -> dict[str, Any]:
    tools = [
        [tool.name, tool.description, tool.schema, tool.read_only, tool.idempotent, tool.destructive]
        for tool in node.tools.values()
    ]
    return {
        "account_id": node.account_id,
        "node_id": node.node_id,
        "user_id": node.user_id,
        "connection_id": node.connection_id,
        "instance_id": node.instance_id,
        "version": node.version,
        "platform": node.platform,
        "tools": to_json(tools),
    }


def _to_node(row: Row) -> Node:
    tools = [ToolDefinition(*values) for values in msgspec.json.decode(row["tools"])]
    columns: dict[str, Any] = {**row, "tools": {tool.name: tool for tool in tools}}
    return Node(**columns)
