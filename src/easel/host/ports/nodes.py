"""Ports of tool nodes: their store, and a connection."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from easel.core.tool.call import NewCall, TakenCall
from easel.core.tool.node import Node, RegisteredNode
from easel.ids import AccountId, CallId


class NodeStore(Protocol):
    """The connected nodes of all instances, and calls between instances.

    The store's clock alone decides whether a node or a call has expired.
    """

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

    async def place_call(self, new: NewCall) -> bool:
        """Place a call durably. Returns False if its target is not connected."""
        ...

    async def take_calls(self, targets: Sequence[str]) -> list[TakenCall]:
        """Return the calls placed for these connections, each call once."""
        ...

    async def save_answer(self, call_id: CallId, target: str, answer: str) -> bool:
        """Store the answer of a call. Returns False if the call was cancelled or has timed out."""
        ...

    async def cancel_call(self, account_id: AccountId, call_id: CallId) -> str | None:
        """Cancel a call. Returns the id of the connection that runs the call; None if none does."""
        ...

    async def renew_calls(self, call_ids: Sequence[CallId], seconds: float) -> set[CallId]:
        """Renew these calls for their caller. Returns the ids of calls that still exist."""
        ...

    async def take_cancelled(self, targets: Sequence[str], *, include_expired: bool) -> list[CallId]:
        """Return the cancelled calls that run on these connections, each call once.

        With `include_expired`, also the calls that their caller did not renew in time.
        """
        ...

    async def collect_answers(self, call_ids: Sequence[CallId]) -> dict[CallId, str | None]:
        """Return the answers that have arrived, each once. None: the call is lost with its connection."""
        ...

    async def sweep(self, older_than_seconds: float) -> None:
        """Delete unfetched answers and expired nodes that are older than this."""
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
