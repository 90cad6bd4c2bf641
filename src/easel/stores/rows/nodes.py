"""Nodes and calls in both stores: conversion between rows and core values."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

import msgspec

from easel.core.stream.json_text import to_json
from easel.core.tool.call import TakenCall
from easel.core.tool.definition import ToolDefinition
from easel.core.tool.node import Node
from easel.stores.rows.runs import Row

_CALL_COLUMNS = tuple(field.name for field in fields(TakenCall))

Time = Callable[[Any], datetime]


def unchanged(time: Any) -> datetime:
    """Return a time that the driver has already decoded."""
    return time


def node_columns(node: Node) -> dict[str, Any]:
    tools = [
        [tool.name, tool.description, tool.schema, tool.read_only, tool.idempotent, tool.destructive]
        for tool in node.tools.values()
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


def to_node(row: Row, time: Time = unchanged) -> Node:
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
    return {values[0]: ToolDefinition(*values) for values in msgspec.json.decode(stored)}


def to_call(row: Row) -> TakenCall:
    return TakenCall(**{name: row[name] for name in _CALL_COLUMNS})
