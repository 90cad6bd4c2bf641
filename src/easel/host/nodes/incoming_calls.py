"""What other instances ask of the nodes that are connected here: taken, passed on, answered once. DESIGN §5

Owns the holder's side of `node_calls`. A call that nobody waits for any more is stopped at the node, and its answer is dropped; so is one
whose caller has not been heard of for too long, unless the store was away: then nobody could be heard of.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from easel.core.canvas.execution import Execution, ExecutionStatus
from easel.core.principal import Principal, PrincipalKind
from easel.core.stream.notifications import CallAnswered
from easel.core.tool.call import Answer, TakenCall
from easel.core.tool.node import full_tool_name, split_tool_name
from easel.errors import HostError, ToolFailed, Unavailable
from easel.host.actions.live_output import LiveOutput, LiveOutputs
from easel.host.artifacts import restore
from easel.host.nodes.connection import ConnectedNode
from easel.host.nodes.remote_calls import INVOKE, light
from easel.host.ports import ArtifactAccess, NodeStore, Notifier

if TYPE_CHECKING:
    from easel.ids import CallId

RETRY_SECONDS = 0.5

log = structlog.get_logger("nodes")


def outcome(name: str, answer: Answer) -> Any:
    """The result, or the failure of the tool."""
    if answer.is_lost:
        reason = f"the node {split_tool_name(name)[0]} went away before it answered; what it was asked may or may not have been done."
        raise ToolFailed(tool=name, reason=reason)
    if answer.error is not None:
        raise ToolFailed(tool=name, reason=answer.error)
    return answer.result


class IncomingCalls:
    def __init__(
        self,
        store: NodeStore,
        keeper: ArtifactAccess,
        notifier: Notifier,
        outputs: LiveOutputs | None,
        *,
        result_bytes: int,
        caller_ttl_seconds: float,
    ) -> None:
        self._store = store
        self._keeper = keeper
        self._notifier = notifier
        self._outputs = outputs
        self._most = result_bytes
        self._heard = caller_ttl_seconds
        self._patient_until = 0.0
        self._running: dict[CallId, asyncio.Task[None]] = {}

    async def once(self, nodes: Mapping[str, ConnectedNode]) -> int:
        """Begin what is asked of these nodes, by their connections, and stop what is not wanted any more; how many were begun."""
        targets = list(nodes)
        if self._running:
            for call_id in await self._store.take_cancelled(
                targets, include_expired=time.monotonic() > self._patient_until
            ):
                if (task := self._running.get(call_id)) is not None:
                    task.cancel()
        taken = await self._store.take_calls(targets)
        for call in taken:
            task = self._running[call.call_id] = asyncio.create_task(self._do(call, nodes[call.target]))
            task.add_done_callback(lambda _, call_id=call.call_id: self._running.pop(call_id, None))
        return len(taken)

    def note_store_outage(self) -> None:
        """Whoever waits gets the time to say so again."""
        self._patient_until = time.monotonic() + self._heard

    async def close(self) -> None:
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _do(self, call: TakenCall, node: ConnectedNode) -> None:
        try:
            async with asyncio.timeout(max(0.0, call.seconds_left)):
                answer = await self._answer(call, node)
                while not await self._is_told(call, answer):  # noqa: ASYNC110 - the store has no event for being back
                    await asyncio.sleep(RETRY_SECONDS)
        except TimeoutError:
            log.info("nodes.too_late", call_id=call.call_id)  # nobody waits for it any more
        except Exception:
            log.exception("nodes.incoming_call_error", call_id=call.call_id)

    async def _answer(self, call: TakenCall, node: ConnectedNode) -> str:
        if call.method != INVOKE:
            return await self._stored(call, Answer(error=f"this instance does not know {call.method}."))
        params: dict[str, Any] = await restore(self._keeper, call.user_id, msgspec.json.decode(call.params))
        output = self._output(call, params)
        try:
            answer = await node.call(
                full_tool_name(node.node.node_id, params["tool"]), params["args"], output and output.hear
            )
        finally:
            if output is not None:
                await output.close()  # before the answer is there: after the end nothing more is told
        if answer.error is None and (size := len(msgspec.json.encode(answer.result))) > self._most:
            answer = Answer(
                error=f"its result of {size} bytes is over the limit of {self._most}; ask for less."
            )
        return await self._stored(call, answer)

    def _output(self, call: TakenCall, params: dict[str, Any]) -> LiveOutput | None:
        if self._outputs is None or "watched" not in params:
            return None
        execution = Execution(
            user_id=call.user_id, status=ExecutionStatus.RUNNING, actor={}, **params["watched"]
        )
        return self._outputs.open(Principal(call.user_id, "node", kind=PrincipalKind.NODE), execution)

    async def _stored(self, call: TakenCall, answer: Answer) -> str:
        try:
            return await light(self._keeper, call.user_id, answer.as_stored())
        except HostError as problem:
            return await light(
                self._keeper,
                call.user_id,
                Answer(error=f"its result cannot be kept: {problem.message}").as_stored(),
            )

    async def _is_told(self, call: TakenCall, answer: str) -> bool:
        try:
            if await self._store.save_answer(call.call_id, call.target, answer):
                self._notifier.notify(CallAnswered(call.call_id))
        except Unavailable:
            return False
        return True
