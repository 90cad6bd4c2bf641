"""A tool node: a connected machine that offers tools. The full name of a tool is `{nodeId}__{Tool}`.

Owns the rules for node ids, and building and splitting full names. The module `offer` parses the tools that a
node declares.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from easel.core.tool.definition import ToolDefinition
from easel.core.validation import find_nearest, refuse
from easel.ids import AccountId, CallId, UserId, is_name

SEPARATOR = "__"
LOCAL = "local"  # the machine that Easel runs on, which is always a node
NATIVE = "gsv"  # the prefix of Easel's own tools
RESERVED = frozenset({NATIVE, LOCAL})
MAX_LABEL_LENGTH = 100  # characters of a node's version and platform

_NOT_PRINTABLE = re.compile(r"[^\x20-\x7e]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node and its current connection.

    Every connection has a new `connection_id`. A call is for exactly one connection.
    """

    account_id: AccountId
    node_id: str
    user_id: UserId  # who answers for the node; no other person can replace it while it is connected
    connection_id: str
    instance_id: str
    version: str
    platform: str
    tools: Mapping[str, ToolDefinition]  # by full name
    connected_at: datetime | None = None  # by the store's clock


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalNode:
    """The machine that Easel runs on: available to every user, without a connection that could end."""

    version: str
    platform: str
    tools: Sequence[str]  # full names
    bash: str  # how commands are isolated, or why commands are disabled. RS-61
    commands: str = "not isolated"  # the same in the words of the consent dialog. RS-64


@dataclass(frozen=True, slots=True)
class RegisteredNode:
    """The result of registering a node. `lost_calls` were for the node's previous connection."""

    connected_at: datetime
    lost_calls: Sequence[CallId]


def check_node_id(value: str) -> str:
    """Return the id. Raises `BadInput` unless it is a valid node id.

    It must not contain `__` or end with `_`, because the first `__` in a tool's full name ends the node id.
    """
    if value.lower() in RESERVED:
        refuse("client.id", f"{value} is reserved; choose another id for the node.")
    if not is_node_id(value):
        refuse(
            "client.id",
            f"`{_NOT_PRINTABLE.sub('?', value)[:60]}` is not a node id; it must be 1 to "
            "128 letters, digits and . _ : - (a letter or digit first), without __ and without _ at its end.",
        )
    return value


def describe_taken(node_id: str) -> str:
    """Return why a node id of another person is refused, for `Forbidden`. RS-76"""
    return f"another person has the node {node_id} in this account; choose another id (--id)."


def is_node_id(value: str) -> bool:
    return (
        is_name(value)
        and SEPARATOR not in value
        and not value.endswith("_")
        and value.lower() not in RESERVED
    )


def describe_place(tool: str, local: LocalNode | None) -> str:
    """Return where a tool runs, in words for a person who decides about a call. RS-64"""
    node_id, name = split_tool_name(tool)
    match node_id, name:
        case "gsv", _:
            return "this server, inside Easel"
        case "local", "Bash":
            return f"this server, {local.commands if local else 'not isolated'}"
        case "local", "Fetch":
            return "this server, over the network"
        case "local", _:
            return "this server, in the folder of the session"
        case _:
            return f"node {node_id}"


def full_tool_name(node_id: str, tool: str) -> str:
    return node_id + SEPARATOR + tool


def split_tool_name(name: str) -> tuple[str, str]:
    """Split a full name into node id and tool. Returns a name without `__` as node id with an empty tool."""
    node_id, _, tool = name.partition(SEPARATOR)
    return node_id, tool


def tool_location(name: str) -> str:
    """Return where a tool runs: the node id, or `server`."""
    return "server" if is_own_tool(name) else split_tool_name(name)[0]


def why_missing(name: str, known: Iterable[str], reasons: Mapping[str, str]) -> str:
    """Return why there is no tool of this name now, as a sentence; `reasons` has those of this machine.

    A misspelt name is compared with the tools of the same machine only: others do something else.
    """
    node_id, tool = split_tool_name(name)
    if reason := reasons.get(name):
        return reason
    if tool and node_id not in RESERVED:
        return f"node {node_id} is not connected or no longer offers it."
    names = [other for place, other in map(split_tool_name, known) if place == node_id]
    nearest = find_nearest(tool, names)
    return (
        f"did you mean {full_tool_name(node_id, nearest)}?"
        if nearest
        else "this server has none of this name."
    )


def is_own_tool(name: str) -> bool:
    """Return whether Easel itself has this tool: neither a node, nor the machine that Easel runs on."""
    node_id, tool = split_tool_name(name)
    return not tool or node_id == NATIVE


def printable_label(value: str) -> str:
    """Return a node's version or platform as one short printable line."""
    return _NOT_PRINTABLE.sub("?", value)[:MAX_LABEL_LENGTH]
