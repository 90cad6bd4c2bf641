"""A node's tool, called across instances: the params on the caller's side, the call on the node's side.

The instance that has the node writes live output to the log of the watched execution, and resolves the
secrets: the params have their names only. RS-66
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from easel.core.action.execution import Execution, ExecutionStatus
from easel.core.call import Answer, TakenCall
from easel.core.principal import Principal, PrincipalKind
from easel.core.tool.context import ToolContext, UsedSecrets
from easel.core.tool.node import full_tool_name, split_tool_name
from easel.host.actions.live_output import LiveOutput, LiveOutputs
from easel.host.nodes.connection import ConnectedNode
from easel.host.ports import SecretSource
from easel.host.tools.secrets import check_takes_secrets, open_secrets

INVOKE = "tool.invoke"


def invocation_params(name: str, args: Mapping[str, Any], context: ToolContext) -> dict[str, Any]:
    params: dict[str, Any] = {"tool": split_tool_name(name)[1], "args": args}
    if context.watched is not None:
        params["watched"] = asdict(context.watched)
    return params | context.secrets.to_stored()


class NodeInvocations:
    def __init__(self, outputs: LiveOutputs | None, secrets: SecretSource | None) -> None:
        self._outputs = outputs
        self._secrets = secrets

    async def invoke(self, node: ConnectedNode, call: TakenCall, params: Mapping[str, Any]) -> Answer:
        """Call the tool of the node, with the values of its secrets. They are masked in its answer. RS-66"""
        output = self._open_output(call, params, node.node.node_id)
        name, on_output = full_tool_name(node.node.node_id, params["tool"]), output and output.feed
        used = UsedSecrets.from_stored(params)
        try:
            if not used:
                return await node.call(name, params["args"], on_output)
            definition = node.node.tools.get(name)
            if definition is None:
                return Answer(error="the node no longer offers it.")
            check_takes_secrets(definition, used)
            async with open_secrets(self._secrets, call.account_id, used) as opened:
                answer = await node.call(
                    name, opened.fill(params["args"]), opened.mask_output(on_output), opened.env
                )
                return await opened.mask_answer(answer)
        finally:
            if output is not None:
                await output.close()  # before the answer is stored, because the answer ends the execution

    def _open_output(self, call: TakenCall, params: Mapping[str, Any], node_id: str) -> LiveOutput | None:
        if self._outputs is None or "watched" not in params:
            return None
        principal = Principal(call.account_id, node_id, kind=PrincipalKind.NODE)
        actor = {"kind": principal.kind.value, "name": principal.name}
        execution = Execution(
            account_id=call.account_id, status=ExecutionStatus.RUNNING, actor=actor, **params["watched"]
        )
        return self._outputs.open(principal, execution)
