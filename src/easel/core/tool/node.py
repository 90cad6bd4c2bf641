"""A tool node: a connected machine that offers tools, which are known as `{nodeId}__{Tool}`.

Owns which ids a node may have and how a tool's full name is built and split. The tools it declares are read
by `offer`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from easel.core.tool.definition import ToolDefinition
from easel.errors import BadInput
from easel.ids import CallId, UserId, is_name

SEPARATOR = "__"
LOCAL = "local"  # the machine that Easel runs on, which is always a node
NATIVE = "gsv"  # the prefix of Easel's own tools
RESERVED = frozenset({NATIVE, LOCAL})
MAX_LABEL_LENGTH = 100  # characters of a node's version and platform

_NOT_PRINTABLE = re.compile(r"[^\x20-\x7e]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A connected node, in one of its connections.

    Each time it connects it gets another `connection_id`, and a call goes to exactly one of them.
    """

    user_id: UserId
    node_id: str
    connection_id: str
    instance_id: str
    version: str
    platform: str
    tools: Mapping[str, ToolDefinition]  # by full name
    connected_at: datetime | None = None  # by the clock of the store


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalNode:
    """The machine that Easel runs on: available to every user, without a connection that could end."""

    version: str
    platform: str
    tools: Sequence[str]  # full names
    bash: str  # how commands are isolated, or why the machine does not run any. RS-61


@dataclass(frozen=True, slots=True)
class RegisteredNode:
    """The result of registering a node; `lost_calls` were placed for its previous connection."""

    connected_at: datetime
    lost_calls: Sequence[CallId]


def check_node_id(value: str) -> str:
    """Return the id, or raise `BadInput`.

    The first `__` of a tool's full name must end the node's id, so that the name splits in one way.
    """
    if not is_name(value) or SEPARATOR in value or value.endswith("_"):
        raise BadInput(
            problem=f"client.id: `{_NOT_PRINTABLE.sub('?', value)[:60]}` is not a node id; it must be 1 to "
            "128 letters, digits and . _ : - (a letter or digit first), without __ and without _ at its end."
        )
    if value.lower() in RESERVED:
        raise BadInput(problem=f"client.id: {value} is reserved; choose another id for the node.")
    return value


def full_tool_name(node_id: str, tool: str) -> str:
    return node_id + SEPARATOR + tool


def split_tool_name(name: str) -> tuple[str, str]:
    """Return the node id and the tool. A name without `__` is returned whole, with an empty tool."""
    node_id, _, tool = name.partition(SEPARATOR)
    return node_id, tool


def tool_location(name: str) -> str:
    """Return where a tool runs: the node id, or `server`."""
    node_id, tool = split_tool_name(name)
    return node_id if tool and node_id != NATIVE else "server"


def printable_label(value: str) -> str:
    """Return a node's version or platform as one short printable line."""
    return _NOT_PRINTABLE.sub("?", value)[:MAX_LABEL_LENGTH]
