"""Ports of tool nodes: their store, and a connection."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from easel.core.tool.call import NewCall, TakenCall
from easel.core.tool.node import Node, RegisteredNode
from easel.ids import CallId, UserId


class NodeStore(Protocol):
    """The connected nodes of all instances, and calls between instances.

    Its clock alone decides what has expired.
    """

    async def register(self, node: Node, *, seconds: float, max_nodes: int) -> RegisteredNode | None:
        """Register a node for `seconds`, in place of its older connection.

        Returns None if the user has `max_nodes` others.
        """
        ...

    async def register_again(self, node: Node, connected_at: datetime, *, seconds: float) -> bool:
        """Register a node whose row was swept. Returns False if it has connected to another instance."""
        ...

    async def unregister(self, connection_id: str) -> list[CallId]:
        """Remove a connection. Returns its calls, which are lost."""
        ...

    async def renew(self, connection_ids: Sequence[str], seconds: float) -> set[str]:
        """Renew nodes. Returns the connections that are still registered."""
        ...

    async def list_nodes(self, user_id: UserId) -> list[Node]:
        """Return the connected nodes, by id."""
        ...

    async def place_call(self, new: NewCall) -> bool:
        """Place a call. Durable when it returns. Returns False if its target is not connected."""
        ...

    async def take_calls(self, targets: Sequence[str]) -> list[TakenCall]:
        """Return the calls placed for these connections, each call once."""
        ...

    async def save_answer(self, call_id: CallId, target: str, answer: str) -> bool:
        """Store the answer of a call. Returns False if the call was cancelled or has timed out."""
        ...

    async def cancel_call(self, user_id: UserId, call_id: CallId) -> str | None:
        """Cancel a call. Returns the connection on which it runs, if it does."""
        ...

    async def renew_calls(self, call_ids: Sequence[CallId], seconds: float) -> set[CallId]:
        """Renew the caller's claim on these calls. Returns those that still exist."""
        ...

    async def take_cancelled(self, targets: Sequence[str], *, include_expired: bool) -> list[CallId]:
        """Return the cancelled calls that run on these connections, each once.

        With `include_expired` also those that their caller did not renew in time.
        """
        ...

    async def collect_answers(self, call_ids: Sequence[CallId]) -> dict[CallId, str | None]:
        """Return the answers that have arrived, each once. None: the target is gone, and the call is lost."""
        ...

    async def sweep(self, older_than_seconds: float) -> None:
        """Delete unfetched answers and expired nodes older than this."""
        ...


class NodeLink(Protocol):
    """The connection of a node, implemented by the edge."""

    async def invoke(self, call_id: CallId, tool: str, args: Mapping[str, Any]) -> None:
        """Send a call to the node. `tool` is its name without the node id."""
        ...

    async def cancel(self, call_id: CallId) -> None: ...

    async def close_replaced(self) -> None:
        """Close this connection because the node has opened another one."""
        ...
