"""A node that is connected to this instance.

Owns the calls that run on one connection. Only that connection can answer them; when it ends, its running
calls are lost.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from typing import Any

import structlog

from easel.core.call import LOST, Answer
from easel.core.tool.node import Node, split_tool_name
from easel.host.ports import NodeLink
from easel.ids import AccountId, CallId

NOT_CONNECTED = Answer(error="its node is not connected; the call was not sent.")
MAX_OUTPUT_LENGTH = 1_048_576  # characters of live output per call; this does not limit the result

OnOutput = Callable[[str], object]

log = structlog.get_logger("nodes")


@dataclass(slots=True)
class _RunningCall:
    answer: "asyncio.Future[Answer]"
    on_output: OnOutput | None
    output_left: int = MAX_OUTPUT_LENGTH


class ConnectedNode:
    def __init__(self, node: Node, link: NodeLink, connected_at: datetime, *, max_calls: int) -> None:
        self.node = node
        self.link = link
        self.connected_at = connected_at
        self._max_calls = max_calls
        self._call_id_prefix = node.connection_id.replace("con_", "call_") + "_"
        self._numbers = count(1)
        self._calls: dict[CallId, _RunningCall] = {}
        self._cancelling: set[asyncio.Task[None]] = set()
        self._is_disconnected = False

    @property
    def key(self) -> tuple[AccountId, str]:
        return self.node.account_id, self.node.node_id

    async def call(
        self,
        name: str,
        args: Mapping[str, Any],
        on_output: OnOutput | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Answer:
        """Call a tool and return its answer. `env` are variables of its command. RS-66

        If the caller is cancelled, the call is cancelled at the node too.
        """
        if self._is_disconnected:
            return NOT_CONNECTED
        if len(self._calls) >= self._max_calls:
            return Answer(
                error=f"the node runs {self._max_calls} calls, which is its limit; try again later."
            )
        call_id = CallId(f"{self._call_id_prefix}{next(self._numbers)}")
        running = _RunningCall(asyncio.get_running_loop().create_future(), on_output)
        self._calls[call_id] = running
        try:
            await self.link.invoke(call_id, split_tool_name(name)[1], args, env)
            return await running.answer
        except asyncio.CancelledError:
            if not running.answer.done() or running.answer.cancelled():
                task = asyncio.create_task(self.link.cancel(call_id))
                self._cancelling.add(task)
                task.add_done_callback(self._cancelling.discard)
            raise
        finally:
            self._calls.pop(call_id, None)

    def finish_call(self, call_id: CallId, answer: Answer) -> bool:
        """Resolve a running call. Returns False if this connection has no such call."""
        running = self._calls.pop(call_id, None)
        if running is None or running.answer.done():
            return False
        running.answer.set_result(answer)
        return True

    def add_output(self, call_id: CallId, text: str) -> bool:
        """Pass live output of a running call to its `on_output` callback, if it has one.

        Returns False if there is no such call.
        """
        running = self._calls.get(call_id)
        if running is None:
            return False
        part = text[: running.output_left]
        running.output_left -= len(part)
        if part and running.on_output is not None:
            try:
                running.on_output(part)
            except Exception:
                log.exception("node.output_callback_error", node_id=self.node.node_id)
                running.on_output = None
        return True

    def mark_disconnected(self) -> None:
        """End every running call as lost, and reject all later calls."""
        self._is_disconnected = True
        for call_id in list(self._calls):
            self.finish_call(call_id, LOST)
