"""The tools an agent can call, by name: arguments checked, time limited, results in bounds."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import jsonschema_rs
import msgspec
import structlog

from easel.core.run.conversation import ToolCall, ToolResult
from easel.core.tool.context import RunContext
from easel.core.tool.definition import ToolDefinition
from easel.core.tool.nesting import DEEPEST, is_too_deep
from easel.errors import HostError, ToolFailed
from easel.host.audit import Audit, agent_of
from easel.host.ports import Tool
from easel.host.run_log import ClaimLost

log = structlog.get_logger("tools")


class Toolbox:
    def __init__(self, tools: Iterable[Tool], *, audit: Audit, timeout_seconds: float, max_result_bytes: int) -> None:
        self._tools = {tool.definition.name: tool for tool in tools}
        self._checks = {name: jsonschema_rs.validator_for(dict(tool.definition.schema)) for name, tool in self._tools.items()}
        self._audit = audit
        self._timeout = timeout_seconds
        self._most = max_result_bytes

    @property
    def definitions(self) -> Sequence[ToolDefinition]:
        return [tool.definition for tool in self._tools.values()]

    def may_repeat(self, name: str) -> bool:
        tool = self._tools.get(name)
        return tool is not None and tool.definition.may_repeat

    async def use(self, call: ToolCall, context: RunContext) -> ToolResult:
        """A failed call is a result too: the model reads why and decides what to do. A lost claim is not: there is nobody to tell."""
        try:
            value = await self._use(call, context)
        except ClaimLost:
            raise
        except HostError as problem:
            return ToolResult(call.call_id, call.tool, self._audit.redacted(problem.message), is_error=True)
        except Exception as problem:
            log.exception("tool.broke", tool=call.tool)
            self._audit.broke(agent_of(context.user_id), "tool.broke", problem, subject=context.run_id, details={"tool": call.tool})
            return ToolResult(call.call_id, call.tool, f"{call.tool} broke ({type(problem).__name__}).", is_error=True)
        return ToolResult(call.call_id, call.tool, value)

    async def _use(self, call: ToolCall, context: RunContext) -> Any:
        tool = self._tools.get(call.tool)
        if tool is None:
            raise ToolFailed(tool=call.tool, reason=f"there is no such tool; there are {', '.join(sorted(self._tools))}.")
        if is_too_deep(call.args):
            raise ToolFailed(tool=call.tool, reason=f"its arguments are nested deeper than {DEEPEST} levels.")
        if wrong := next(self._checks[call.tool].iter_errors(call.args), None):
            place = "/".join(str(step) for step in wrong.instance_path) or "the arguments"
            raise ToolFailed(tool=call.tool, reason=f"{place}: {wrong.message}")
        try:
            async with asyncio.timeout(self._timeout):
                value = await tool.use(call.args, context)
        except TimeoutError:
            raise ToolFailed(tool=call.tool, reason=f"took longer than {self._timeout:g} s and was stopped.") from None
        if is_too_deep(value):
            raise ToolFailed(tool=call.tool, reason=f"its result is nested deeper than {DEEPEST} levels.")
        if (size := len(msgspec.json.encode(value))) > self._most:
            raise ToolFailed(tool=call.tool, reason=f"its result of {size} bytes is over the limit of {self._most}; ask for less.")
        return value
