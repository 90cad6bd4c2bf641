"""A node that is connected to this instance: what it is asked, and what it answers.

Owns the calls that are under way on one connection. Only that connection can answer them; when it ends, each of them ends at once.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from typing import Any

import structlog

from easel.core.tool.call import LOST, NOT_ASKED, Answer
from easel.core.tool.node import Node, split_tool_name
from easel.host.ports import NodeLink
from easel.ids import CallId

MAX_OUTPUT = 1_048_576  # characters of a call's output that are passed on while it runs; its result has what matters of the rest

OnOutput = Callable[[str], None]

log = structlog.get_logger("nodes")


@dataclass(slots=True)
class _UnderWay:
    answer: "asyncio.Future[Answer]"
    on_output: OnOutput | None
    output_left: int = MAX_OUTPUT


class ConnectedNode:
    def __init__(self, node: Node, link: NodeLink, connected_at: datetime, *, max_calls: int) -> None:
        self.node = node
        self.link = link
        self.connected_at = connected_at
        self._most = max_calls
        self._calls_prefix = node.connection_id.replace("con_", "call_") + "_"
        self._numbers = count(1)
        self._calls: dict[CallId, _UnderWay] = {}
        self._cancelling: set[asyncio.Task[None]] = set()
        self._is_lost = False

    async def call(self, name: str, args: Mapping[str, Any], on_output: OnOutput | None = None) -> Answer:
        """Whoever stops waiting stops the call at the node too."""
        if self._is_lost:
            return NOT_ASKED
        if len(self._calls) >= self._most:
            return Answer(
                error=f"the node has {self._most} calls under way, and takes no more at once; try again in a moment."
            )
        call_id = CallId(f"{self._calls_prefix}{next(self._numbers)}")
        under_way = _UnderWay(asyncio.get_running_loop().create_future(), on_output)
        self._calls[call_id] = under_way
        try:
            await self.link.invoke(call_id, split_tool_name(name)[1], args)
            return await under_way.answer
        except asyncio.CancelledError:
            if not under_way.answer.done() or under_way.answer.cancelled():
                task = asyncio.create_task(self.link.cancel(call_id))
                self._cancelling.add(task)
                task.add_done_callback(self._cancelling.discard)
            raise
        finally:
            self._calls.pop(call_id, None)

    def answered(self, call_id: CallId, answer: Answer) -> bool:
        """False: nobody waits for this, or it was never asked of this connection."""
        under_way = self._calls.pop(call_id, None)
        if under_way is None or under_way.answer.done():
            return False
        under_way.answer.set_result(answer)
        return True

    def said(self, call_id: CallId, text: str) -> bool:
        """Output of a call that is not over yet: for whoever called and wants to see it, and else for nobody."""
        under_way = self._calls.get(call_id)
        if under_way is None:
            return False
        part = text[: under_way.output_left]
        under_way.output_left -= len(part)
        if part and under_way.on_output is not None:
            try:
                under_way.on_output(part)
            except Exception:
                log.exception("node.nobody_sees_the_output", node_id=self.node.node_id)
                under_way.on_output = None
        return True

    def lose(self) -> None:
        """The connection has ended."""
        self._is_lost = True
        for call_id in list(self._calls):
            self.answered(call_id, LOST)
