"""Calls from other instances to nodes connected here: each is taken, run and answered once. DESIGN §5

Owns the side of the instance that has the node. A cancelled call is cancelled at the node, and its answer is
dropped. So is a call that its caller did not renew in time, except after the database was unavailable: then
callers first get time to renew.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from easel.core.action.execution import Execution, ExecutionStatus
from easel.core.principal import Principal, PrincipalKind
from easel.core.stream.notifications import CallAnswered
from easel.core.tool.call import Answer, TakenCall
from easel.core.tool.context import UsedSecrets
from easel.core.tool.node import full_tool_name, split_tool_name
from easel.errors import HostError, ToolFailed, Unavailable
from easel.host.actions.live_output import LiveOutput, LiveOutputs
from easel.host.artifacts.artifacts import restore
from easel.host.nodes.connection import ConnectedNode
from easel.host.nodes.remote_calls import INVOKE, offload_to_json
from easel.host.ports import ArtifactAccess, NodeStore, Notifier, SecretSource
from easel.host.tools.secrets import check_takes_secrets, open_secrets

if TYPE_CHECKING:
    from easel.ids import CallId

RETRY_SECONDS = 0.5

log = structlog.get_logger("nodes")


def result_of(name: str, answer: Answer) -> Any:
    """Return the result of a tool, or raise `ToolFailed`."""
    if answer.is_lost:
        node_id = split_tool_name(name)[0]
        reason = f"node {node_id} disconnected before it answered; it may or may not have executed the call."
        raise ToolFailed(tool=name, reason=reason)
    if answer.error is not None:
        raise ToolFailed(tool=name, reason=answer.error)
    return answer.result


class IncomingCalls:
    def __init__(
        self,
        store: NodeStore,
        artifacts: ArtifactAccess,
        notifier: Notifier,
        outputs: LiveOutputs | None,
        *,
        secrets: SecretSource | None = None,
        max_result_bytes: int,
        caller_ttl_seconds: float,
    ) -> None:
        self._store = store
        self._artifacts = artifacts
        self._notifier = notifier
        self._outputs = outputs
        self._secrets = secrets
        self._max_result_bytes = max_result_bytes
        self._caller_ttl_seconds = caller_ttl_seconds
        self._grace_until = 0.0  # until then no call expires, because the database was unavailable
        self._running: dict[CallId, asyncio.Task[None]] = {}

    async def once(self, nodes: Mapping[str, ConnectedNode]) -> int:
        """Cancel calls that were cancelled or not renewed by their caller, and start new calls.

        `nodes` are keyed by connection id. Returns how many calls were started.
        """
        targets = list(nodes)
        try:
            if self._running:
                is_grace_over = time.monotonic() > self._grace_until
                for call_id in await self._store.take_cancelled(targets, include_expired=is_grace_over):
                    if (task := self._running.get(call_id)) is not None:
                        task.cancel()
            calls = await self._store.take_calls(targets)
        except Unavailable:
            self._grace_until = time.monotonic() + self._caller_ttl_seconds
            raise
        for call in calls:
            task = self._running[call.call_id] = asyncio.create_task(self._run(call, nodes[call.target]))
            task.add_done_callback(lambda _, call_id=call.call_id: self._running.pop(call_id, None))
        return len(calls)

    async def close(self) -> None:
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _run(self, call: TakenCall, node: ConnectedNode) -> None:
        try:
            async with asyncio.timeout(max(0.0, call.seconds_left)):
                answer = await self._call_node(call, node)
                # Poll, because nothing notifies when the store is available again.
                while not await self._save(call, answer):  # noqa: ASYNC110
                    await asyncio.sleep(RETRY_SECONDS)
        except TimeoutError:
            log.info("nodes.incoming_call_timed_out", call_id=call.call_id)
        except Exception:
            log.exception("nodes.incoming_call_error", call_id=call.call_id)

    async def _call_node(self, call: TakenCall, node: ConnectedNode) -> str:
        """Make the call on the node. Returns the answer as JSON for the row of the call."""
        if call.method != INVOKE:
            return await self._to_stored(call, Answer(error=f"this instance does not know {call.method}."))
        params: dict[str, Any] = await restore(
            self._artifacts, call.account_id, msgspec.json.decode(call.params)
        )
        output = self._open_output(call, params, node.node.node_id)
        try:
            answer = await self._invoke(call, node, params, output)
        finally:
            if output is not None:
                await output.close()  # before the answer is stored, because the answer ends the execution
        if (
            answer.error is None
            and (size := len(msgspec.json.encode(answer.result))) > self._max_result_bytes
        ):
            limit = self._max_result_bytes
            answer = Answer(error=f"its result of {size} bytes is over the limit of {limit}; ask for less.")
        return await self._to_stored(call, answer)

    async def _invoke(
        self, call: TakenCall, node: ConnectedNode, params: Mapping[str, Any], output: LiveOutput | None
    ) -> Answer:
        """Call the tool of the node, with the values of its secrets. They are masked in its answer. RS-66"""
        name, on_output = full_tool_name(node.node.node_id, params["tool"]), output and output.feed
        used = UsedSecrets.from_stored(params)
        if not used:
            return await node.call(name, params["args"], on_output)
        try:
            definition = node.node.tools.get(name)
            if definition is None:
                return Answer(error="the node no longer offers it.")
            check_takes_secrets(definition, used)
            async with open_secrets(self._secrets, call.account_id, used) as opened:
                answer = await node.call(
                    name, opened.fill(params["args"]), opened.mask_output(on_output), opened.env
                )
                return await opened.mask_answer(answer)
        except HostError as problem:
            return Answer(error=problem.message)

    def _open_output(self, call: TakenCall, params: dict[str, Any], node_id: str) -> LiveOutput | None:
        if self._outputs is None or "watched" not in params:
            return None
        principal = Principal(call.account_id, node_id, kind=PrincipalKind.NODE)
        actor = {"kind": principal.kind.value, "name": principal.name}
        execution = Execution(
            account_id=call.account_id, status=ExecutionStatus.RUNNING, actor=actor, **params["watched"]
        )
        return self._outputs.open(principal, execution)

    async def _to_stored(self, call: TakenCall, answer: Answer) -> str:
        try:
            return await offload_to_json(self._artifacts, call.account_id, answer.to_stored())
        except HostError as problem:
            failure = Answer(error=f"its result cannot be stored: {problem.message}")
            return await offload_to_json(self._artifacts, call.account_id, failure.to_stored())

    async def _save(self, call: TakenCall, answer: str) -> bool:
        """Store the answer and notify the caller. Returns False if the database is unavailable."""
        try:
            if await self._store.save_answer(call.call_id, call.target, answer):
                self._notifier.notify(CallAnswered(call.call_id))
        except Unavailable:
            return False
        return True
