"""A tool node: a machine that is connected and offers tools, which are known as `{nodeId}__{Tool}`.

Owns which names a node may have and how a tool's whole name is made and taken apart. What a node says of its tools is `offer`'s.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from easel.core.tool.definition import ToolDefinition
from easel.errors import BadInput
from easel.ids import CallId, UserId, is_name

SEPARATOR = "__"
LOCAL = "local"  # the node that is always there: the machine that Easel itself runs on
RESERVED = frozenset({"gsv", LOCAL})  # our own tools are gsv's
MAX_ABOUT_LENGTH = 100  # characters of a node's version and platform

_SHOWN = re.compile(r"[^\x20-\x7e]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node as all instances know it. Each time it connects it is another `connection_id`, and calls go to exactly that one."""

    user_id: UserId
    node_id: str
    connection_id: str
    instance_id: str
    version: str
    platform: str
    tools: Mapping[str, ToolDefinition]  # by their whole names
    connected_at: datetime | None = None  # the store says when


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalNode:
    """The machine that Easel itself runs on: there for every user, with no connection that could end."""

    version: str
    platform: str
    tools: Sequence[str]  # their whole names
    bash: str  # whether it runs commands and how they are isolated, or why it does not. RS-61


@dataclass(frozen=True, slots=True)
class RegisteredNode:
    """A node has its place; what was asked of the connection that had it before gets no answer."""

    connected_at: datetime
    lost: Sequence[CallId]


def checked_node_id(value: str) -> str:
    """As a canvas's id, and such that a tool's whole name has one meaning only: the first `__` in it ends the node's id."""
    if not is_name(value) or SEPARATOR in value or value.endswith("_"):
        raise BadInput(
            problem=f"client.id: {_shown(value)} is no node's id; it is 1 to 128 letters, digits and . _ : - (a letter or digit first), "
            "without __ and without _ at its end."
        )
    if value.lower() in RESERVED:
        raise BadInput(problem=f"client.id: {value} is reserved; give the node another id.")
    return value


def full_tool_name(node_id: str, tool: str) -> str:
    return node_id + SEPARATOR + tool


def split_tool_name(name: str) -> tuple[str, str]:
    """The node and the tool; of a name that is no node's tool, the whole name and nothing."""
    node_id, _, tool = name.partition(SEPARATOR)
    return node_id, tool


def where(name: str) -> str:
    """Where a tool runs: on a node, or on the server itself."""
    node_id, tool = split_tool_name(name)
    return node_id if tool and node_id != "gsv" else "server"


def about(value: str) -> str:
    """What a node says of its version and platform: for people, on one line."""
    return _SHOWN.sub("?", value)[:MAX_ABOUT_LENGTH]


def _shown(value: str) -> str:
    return f"`{_SHOWN.sub('?', value)[:60]}`"
