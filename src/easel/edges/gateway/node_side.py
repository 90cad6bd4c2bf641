"""A connection in node mode: sends calls to the node and receives their results and progress, nothing else.

Results are handled without a task of their own, to keep calls cheap. Receipts, the responses to results and
progress, are sent a moment later and together, because the node does not wait for them.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import structlog
from msgspec import UNSET

from easel.core.call import Answer
from easel.edges.decoding import with_warnings
from easel.edges.gateway import frames
from easel.edges.gateway.frames import CANCEL, INVOKE
from easel.edges.gateway.hello import NODE, PROGRESS, RESULT
from easel.edges.methods import decode_params
from easel.edges.params import ToolProgress, ToolResultParams
from easel.edges.results import Receipt
from easel.edges.socket import DONE, REPLACED, Socket
from easel.errors import BadInput, NotInMode
from easel.host.nodes.connection import ConnectedNode
from easel.ids import CallId

MAX_ERROR_LENGTH = 4_000  # characters; a longer message is cut
RECEIPT_SECONDS = 0.005  # delay before receipts are sent
# Requests of a node of GSV: probes, background commands, logs and file transfers. They are answered and not
# used. RS-67
UNUSED = frozenset({"node.probe.result", "node.exec.event", "logs.result"})
UNUSED_PREFIX = "transfer."
MAX_RECEIPTS = 64  # this many pending receipts are sent without the delay


log = structlog.get_logger("gateway")


class NodeSide:
    """Implements the port `NodeLink`. A node can only answer calls that were sent over its own connection."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        self.node: ConnectedNode | None = None  # set when the node is registered
        self._receipts: list[str] = []
        self._flushing: asyncio.Task[None] | None = None
        self._has_ignored = False

    async def invoke(
        self, call_id: CallId, tool: str, args: Mapping[str, Any], env: Mapping[str, str] | None = None
    ) -> None:
        await self._socket.send(frames.notice(INVOKE, frames.NodeCall(call_id, tool, args, env or UNSET)))

    async def cancel(self, call_id: CallId) -> None:
        await self._socket.send(frames.notice(CANCEL, frames.CancelledNodeCall(call_id)))

    async def close_replaced(self) -> None:
        await self._socket.close(DONE, REPLACED)

    async def handle(self, request: frames.Request) -> None:
        """Handle a request of the node. Raises a `HostError` if the request is refused."""
        is_accepted, warnings = self._accept(request)
        receipt = Receipt(ok=True, dropped=UNSET if is_accepted else True)
        answer = with_warnings(receipt, [*request.warnings, *warnings])
        self._receipts.append(frames.response(request.id, answer))
        if len(self._receipts) >= MAX_RECEIPTS:
            await self._flush_receipts()
        elif self._flushing is None or self._flushing.done():
            self._flushing = self._socket.start(self._flush_later())

    def ignore(self, what: str) -> None:
        """Ignore a frame of a node of GSV that Easel does not use; logs the first one of the connection."""
        if not self._has_ignored:
            node_id = "" if self.node is None else self.node.node.node_id
            log.info("gateway.node_frame_ignored", node_id=node_id, what=what[:100])
        self._has_ignored = True

    async def _flush_later(self) -> None:
        await asyncio.sleep(RECEIPT_SECONDS)
        await self._flush_receipts()

    async def _flush_receipts(self) -> None:
        receipts, self._receipts = self._receipts, []
        for receipt in receipts:
            await self._socket.send(receipt)

    def _accept(self, request: frames.Request) -> tuple[bool, list[str]]:
        """Pass a result or progress to its call. Returns whether the call is still running, and warnings."""
        assert self.node is not None
        match request.method:
            case "tool.result":
                result, warnings = decode_params(RESULT, request.params, ToolResultParams)
                return self._finish_call(self.node, result), warnings
            case "tool.progress":
                progress, warnings = decode_params(PROGRESS, request.params, ToolProgress)
                return self.node.add_output(CallId(progress.callId), progress.text), warnings
            case "connect":
                raise BadInput(problem="This connection is already connected.")
            case method if method in UNUSED or method.startswith(UNUSED_PREFIX):
                self.ignore(method)
                return False, []
            case other:
                raise NotInMode(method=other[:200], mode=NODE)

    def _finish_call(self, node: ConnectedNode, params: ToolResultParams) -> bool:
        # A node may send the member that it does not use as null.
        is_failed = isinstance(params.error, str)
        if (params.result is UNSET and not is_failed) or (is_failed and params.result not in (UNSET, None)):
            raise BadInput(problem="A result must have either `result` or `error`.")
        answer = (
            Answer(error=params.error[:MAX_ERROR_LENGTH] or "failed.")
            if isinstance(params.error, str)
            else Answer(params.result)
        )
        return node.finish_call(CallId(params.callId), answer)
