"""A connection in node mode: what is asked of the node goes out, what it answers comes in, and nothing else.

Answers are taken where they are heard, without a task of their own: a tool's call costs no more than its way there and back. That they
were taken is told a moment later, with what else goes to the node, since nobody waits for it: each frame of its own would cost as much as
the call.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from easel.core.tool.call import Answer
from easel.edges.gateway import frames
from easel.edges.gateway.hello import CANCEL, INVOKE, NODE, PROGRESS, RESULT
from easel.edges.methods import fitted
from easel.errors import BadInput, NotInMode
from easel.host.nodes.connection import ConnectedNode
from easel.ids import CallId

MAX_ERROR_LENGTH = 4_000  # characters of it that are told on
MAX_PROGRESS_LENGTH = 65_536
RECEIPT_SECONDS = 0.005
MAX_RECEIPTS = 64


class ToolResult(Struct, forbid_unknown_fields=True):
    callId: str  # noqa: N815 - the protocol's own word, as below
    result: Any = UNSET
    error: str | UnsetType = UNSET


class ToolProgress(Struct, forbid_unknown_fields=True):
    callId: str  # noqa: N815
    text: Annotated[str, Meta(max_length=MAX_PROGRESS_LENGTH)]


class NodeSide:
    """Fulfils the host's port `NodeLink`. A call that is not this connection's own cannot be answered here."""

    def __init__(self, send: Callable[[str], Awaitable[None]], part: Callable[[], Awaitable[None]]) -> None:
        self._send = send
        self._part = part
        self.node: ConnectedNode | None = None  # once it has been let in
        self._receipts: list[str] = []
        self._giving: asyncio.Task[None] | None = None

    async def invoke(self, call_id: CallId, tool: str, args: Mapping[str, Any]) -> None:
        await self._send(frames.notice(INVOKE, {"callId": call_id, "tool": tool, "args": args}))

    async def cancel(self, call_id: CallId) -> None:
        await self._send(frames.notice(CANCEL, {"callId": call_id}))

    async def close_replaced(self) -> None:
        await self._part()

    async def take(self, asked: frames.Request) -> None:
        """Something that the node says. Raises what it is refused with."""
        is_wanted = self._is_wanted(asked)
        self._receipts.append(
            frames.answer(asked.id, {"ok": True} if is_wanted else {"ok": True, "dropped": True})
        )
        if len(self._receipts) >= MAX_RECEIPTS:
            await self._give_receipts()
        elif self._giving is None or self._giving.done():
            self._giving = asyncio.create_task(self._give_soon())

    async def close(self) -> None:
        if self._giving is not None:
            self._giving.cancel()
            await asyncio.gather(self._giving, return_exceptions=True)

    async def _give_soon(self) -> None:
        await asyncio.sleep(RECEIPT_SECONDS)
        await self._give_receipts()

    async def _give_receipts(self) -> None:
        receipts, self._receipts = self._receipts, []
        for receipt in receipts:
            await self._send(receipt)

    def _is_wanted(self, asked: frames.Request) -> bool:
        assert self.node is not None
        match asked.method:
            case "tool.result":
                return self._result(self.node, fitted(RESULT, asked.params, ToolResult))
            case "tool.progress":
                told: ToolProgress = fitted(PROGRESS, asked.params, ToolProgress)
                return self.node.said(CallId(told.callId), told.text)
            case "connect":
                raise BadInput(problem="This connection is connected already.")
            case other:
                raise NotInMode(method=other[:200], mode=NODE)

    def _result(self, node: ConnectedNode, told: ToolResult) -> bool:
        if (told.result is UNSET) == (told.error is UNSET):
            raise BadInput(problem="A call is answered with `result` or with `error`, one of the two.")
        answer = (
            Answer(told.result)
            if isinstance(told.error, UnsetType)
            else Answer(error=told.error[:MAX_ERROR_LENGTH] or "failed.")
        )
        return node.answered(CallId(told.callId), answer)
