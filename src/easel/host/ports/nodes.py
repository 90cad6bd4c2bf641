"""What tool nodes need from outside: their store, and a connection."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from easel.core.tool.call import NewCall, TakenCall
from easel.core.tool.node import Node, RegisteredNode
from easel.ids import CallId, UserId


class NodeStore(Protocol):
    """Which nodes are connected, wherever, and the calls to those that are connected elsewhere. Only its clock decides who is there."""

    async def register(self, node: Node, *, seconds: float, max_nodes: int) -> RegisteredNode | None:
        """In the place of its older connection, if it has one, and there for so long. None: this user has `most` others."""
        ...

    async def register_again(self, node: Node, connected_at: datetime, *, seconds: float) -> bool:
        """After its row was lost; False: it has meanwhile connected elsewhere."""
        ...

    async def unregister(self, connection_id: str) -> list[CallId]:
        """The calls that get no answer for it."""
        ...

    async def renew(self, connection_ids: Sequence[str], seconds: float) -> set[str]:
        """Those that are still their nodes' connections."""
        ...

    async def list_nodes(self, user_id: UserId) -> list[Node]:
        """Those that are there now, by id."""
        ...

    async def place_call(self, new: NewCall) -> bool:
        """Durable when it returns; False: its target is not there."""
        ...

    async def take_calls(self, targets: Sequence[str]) -> list[TakenCall]:
        """What is asked of these connections: each call once."""
        ...

    async def save_answer(self, call_id: CallId, target: str, answer: str) -> bool:
        """False: nobody waits for it any more."""
        ...

    async def cancel_call(self, user_id: UserId, call_id: CallId) -> str | None:
        """Nobody waits for it any more. The connection at which it is under way, if it is."""
        ...

    async def renew_calls(self, call_ids: Sequence[CallId], seconds: float) -> set[CallId]:
        """Whoever made them waits for so long at least; which of them there are still."""
        ...

    async def take_cancelled(self, targets: Sequence[str], *, include_expired: bool) -> list[CallId]:
        """What was cancelled while these connections were at it, each once; with `unheard` also that whose caller has not been heard of."""
        ...

    async def collect_answers(self, call_ids: Sequence[CallId]) -> dict[CallId, str | None]:
        """The answers that are there, each once; None: the target is gone, and there will be none."""
        ...

    async def sweep(self, older_than_seconds: float) -> None:
        """Remove what nobody fetched and who nobody heard of for so long."""
        ...


class NodeLink(Protocol):
    """A node's connection, as the edge has it."""

    async def invoke(self, call_id: CallId, tool: str, args: Mapping[str, Any]) -> None:
        """The tool's own name, without the node's."""
        ...

    async def cancel(self, call_id: CallId) -> None: ...

    async def close_replaced(self) -> None:
        """The node has come back by another connection: this one ends politely."""
        ...
