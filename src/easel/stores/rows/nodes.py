"""Nodes, calls and tokens between rows and values: what every store reads and writes alike."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

import msgspec

from easel.core.stream.json_text import to_json
from easel.core.token import Token, TokenKind
from easel.core.tool.call import TakenCall
from easel.core.tool.definition import ToolDefinition
from easel.core.tool.node import Node
from easel.stores.rows.runs import Row

_OF_CALL = tuple(field.name for field in fields(TakenCall))
_OF_TOKEN = tuple(field.name for field in fields(Token))

Time = Callable[[Any], datetime]


def as_it_is(time: Any) -> datetime:
    return time


def node_columns(node: Node) -> dict[str, Any]:
    tools = [
        [one.name, one.description, one.schema, one.read_only, one.idempotent, one.destructive]
        for one in node.tools.values()
    ]
    return {
        "user_id": node.user_id,
        "node_id": node.node_id,
        "connection_id": node.connection_id,
        "instance_id": node.instance_id,
        "version": node.version,
        "platform": node.platform,
        "tools": to_json(tools),
    }


def to_node(row: Row, time: Time = as_it_is) -> Node:
    return Node(
        user_id=row["user_id"],
        node_id=row["node_id"],
        connection_id=row["connection_id"],
        instance_id=row["instance_id"],
        version=row["version"],
        platform=row["platform"],
        tools=_tools(row["tools"]),
        connected_at=time(row["connected_at"]),
    )


def _tools(stored: str) -> Mapping[str, ToolDefinition]:
    return {one[0]: ToolDefinition(*one) for one in msgspec.json.decode(stored)}


def to_call(row: Row) -> TakenCall:
    return TakenCall(**{name: row[name] for name in _OF_CALL})


def to_token(row: Row, time: Time = as_it_is) -> Token:
    given: dict[str, Any] = {name: row[name] for name in _OF_TOKEN}
    given |= {name: time(given[name]) for name in ("created_at", "revoked_at") if given[name] is not None}
    given["kind"] = TokenKind(given["kind"])
    return Token(**given)
