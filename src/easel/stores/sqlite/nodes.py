"""Tool nodes and calls to them in SQLite. The rules are in the statements of `sql/sqlite/nodes.sql`.

SQLite serves one process, to which every node is connected, so calls between instances do not occur. They are
implemented because all stores have the same contract.
"""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from easel.core.tool.call import NewCall, TakenCall
from easel.core.tool.node import Node, RegisteredNode
from easel.ids import CallId, UserId
from easel.stores import named_sql
from easel.stores.rows.nodes import node_columns, to_call, to_node
from easel.stores.sqlite.times import from_datetime, microseconds, to_datetime

if TYPE_CHECKING:
    from easel.stores.sqlite.database import SqliteDatabase

SQL = named_sql.load("sqlite", "nodes")


class SqliteNodes:
    def __init__(self, database: "SqliteDatabase") -> None:
        self._database = database

    # -- connections -----------------------------------------------------------------------------------------

    async def register(self, node: Node, *, seconds: float, max_nodes: int) -> RegisteredNode | None:
        columns = node_columns(node)

        def work(connection: sqlite3.Connection) -> RegisteredNode | None:
            now = self._database.clock()
            older = _rows(connection, "lock_node", columns)
            if _rows(connection, "count_nodes", {**columns, "now": now})[0]["others"] >= max_nodes:
                return None
            [registered] = _rows(
                connection,
                "register_node",
                {**columns, "now": now, "expires_at": now + microseconds(seconds)},
            )
            failed = [call for row in older for call in _fail_calls(connection, row["connection_id"])]
            return RegisteredNode(to_datetime(registered["connected_at"]), failed)

        return await self._database.write(work)

    async def register_again(self, node: Node, connected_at: datetime, *, seconds: float) -> bool:
        times = {"connected_at": from_datetime(connected_at), "expires_at": self._until(seconds)}
        return bool(await self._change("register_node_again", **node_columns(node), **times))

    async def unregister(self, connection_id: str) -> list[CallId]:
        def work(connection: sqlite3.Connection) -> list[CallId]:
            _rows(connection, "unregister_node", {"connection_id": connection_id})
            return _fail_calls(connection, connection_id)

        return await self._database.write(work)

    async def renew(self, connection_ids: Sequence[str], seconds: float) -> set[str]:
        rows = await self._change(
            "renew_nodes", connection_ids=_json(connection_ids), expires_at=self._until(seconds)
        )
        return {row["connection_id"] for row in rows}

    async def list_nodes(self, user_id: UserId) -> list[Node]:
        arguments = {"user_id": user_id, "now": self._database.clock()}
        return [
            to_node(row, to_datetime)
            for row in await self._database.read(
                lambda connection: _rows(connection, "list_nodes", arguments)
            )
        ]

    # -- calls -----------------------------------------------------------------------------------------------

    async def place_call(self, new: NewCall) -> bool:
        placed = await self._change(
            "place_call",
            call_id=new.call_id,
            user_id=new.user_id,
            target=new.target,
            method=new.method,
            params=new.params,
            deadline=self._until(new.timeout_seconds),
            heard_until=self._until(new.caller_ttl_seconds),
        )
        return bool(placed)

    async def take_calls(self, targets: Sequence[str]) -> list[TakenCall]:
        return [to_call(row) for row in await self._change("take_calls", targets=_json(targets))]

    async def save_answer(self, call_id: CallId, target: str, answer: str) -> bool:
        return bool(await self._change("answer_call", call_id=call_id, target=target, answer=answer))

    async def cancel_call(self, user_id: UserId, call_id: CallId) -> str | None:
        ids = {"user_id": user_id, "call_id": call_id}
        if await self._change("delete_call", **ids):
            return None
        rows = await self._change("cancel_call", **ids)
        return rows[0]["target"] if rows else None

    async def renew_calls(self, call_ids: Sequence[CallId], seconds: float) -> set[CallId]:
        rows = await self._change("renew_calls", call_ids=_json(call_ids), heard_until=self._until(seconds))
        return {CallId(row["call_id"]) for row in rows}

    async def take_cancelled(self, targets: Sequence[str], *, include_expired: bool) -> list[CallId]:
        return [
            CallId(row["call_id"])
            for row in await self._change(
                "take_cancelled_calls", targets=_json(targets), unheard=include_expired
            )
        ]

    async def collect_answers(self, call_ids: Sequence[CallId]) -> dict[CallId, str | None]:
        return {
            CallId(row["call_id"]): row["answer"]
            for row in await self._change("collect_answers", call_ids=_json(call_ids))
        }

    async def sweep(self, older_than_seconds: float) -> None:
        before = self._database.clock() - microseconds(older_than_seconds)
        await self._change("sweep_calls", before=before)
        await self._change("sweep_nodes", before=before)

    # -- statements ------------------------------------------------------------------------------------------

    def _until(self, seconds: float) -> int:
        return self._database.clock() + microseconds(seconds)

    async def _change(self, name: str, **arguments: Any) -> list[Any]:
        arguments["now"] = self._database.clock()
        return await self._database.write(lambda connection: _rows(connection, name, arguments))


def _rows(connection: sqlite3.Connection, name: str, arguments: dict[str, Any]) -> list[Any]:
    return connection.execute(SQL[name].sql, arguments).fetchall()


def _fail_calls(connection: sqlite3.Connection, connection_id: str) -> list[CallId]:
    return [CallId(row["call_id"]) for row in _rows(connection, "fail_calls", {"target": connection_id})]


def _json(values: Sequence[str]) -> str:
    return msgspec.json.encode(list(values)).decode()
