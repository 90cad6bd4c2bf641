"""Ports of tool nodes: their store, and a connection."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from easel.core.tool.node import Node, RegisteredNode
from easel.ids import AccountId, CallId


class NodeStore(Protocol):
    """The connected nodes of all instances. The store's clock alone decides whether a node has expired."""

    async def register(self, node: Node, *, seconds: float, max_nodes: int) -> RegisteredNode | None:
        """Register a node for `seconds`, in place of its older connection.

        Returns None if the user has `max_nodes` other nodes.
        """
        ...

    async def register_again(self, node: Node, connected_at: datetime, *, seconds: float) -> bool:
        """Register a node whose row was swept. Returns False if the node has another connection by now."""
        ...

    async def unregister(self, connection_id: str) -> list[CallId]:
        """Remove a connection. Returns the ids of its calls, which are lost."""
        ...

    async def renew(self, connection_ids: Sequence[str], seconds: float) -> set[str]:
        """Renew the nodes on these connections. Returns the ids of connections still registered."""
        ...

    async def list_nodes(self, account_id: AccountId) -> list[Node]:
        """Return the account's connected nodes on all instances, in id order."""
        ...

    async def sweep(self, older_than_seconds: float) -> None:
        """Delete expired nodes that are older than this."""
        ...


class NodeLink(Protocol):
    """The connection of a node, implemented by the edge."""

    async def invoke(
        self, call_id: CallId, tool: str, args: Mapping[str, Any], env: Mapping[str, str] | None = None
    ) -> None:
        """Send a call to the node. `tool` is the name of the tool without the node id."""
        ...

    async def cancel(self, call_id: CallId) -> None: ...

    async def close_replaced(self) -> None:
        """Close this connection because the node has opened another one."""
        ...
