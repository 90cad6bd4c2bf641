"""The tools that can be called, by name: our own and those that others offer. Arguments checked, time limited, results in bounds.

Owns the one way to a tool, for an agent's call and for a canvas's action alike: there is no second catalogue. CV-03
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from easel.core.run.conversation import ToolCall, ToolResult
from easel.core.run.run import ClaimLost
from easel.core.stream.json_text import to_json
from easel.core.tool.context import ToolContext
from easel.core.tool.definition import ToolDefinition
from easel.core.tool.offer import count_schema_parts, count_values
from easel.core.validation import MAX_DEPTH, is_too_deep
from easel.errors import HostError, ToolFailed
from easel.host.audit import Audit
from easel.host.ports import Tool, ToolSource
from easel.host.tools.schema import checker
from easel.ids import UserId

if TYPE_CHECKING:
    import jsonschema_rs

MAX_CHECKS = 10_000  # schemas that are kept ready; nodes come and go under many names
MAX_CONCURRENT_CHECKS = 5_000_000  # parts of a schema for each value of a call's arguments: a tenth of a second, in which nobody else is served

log = structlog.get_logger("tools")


@dataclass(frozen=True, slots=True)
class _Check:
    schema: Mapping[str, Any]
    validator: "jsonschema_rs.Validator"
    parts: int

    @classmethod
    def of(cls, schema: Mapping[str, Any]) -> "_Check":
        return cls(schema, checker(schema), count_schema_parts(schema))


class ToolRegistry:
    def __init__(
        self,
        tools: Iterable[Tool],
        *,
        audit: Audit,
        timeout_seconds: float,
        max_result_bytes: int,
        sources: Sequence[ToolSource] = (),
    ) -> None:
        self._tools: dict[str, Tool] = {}
        self._own: Mapping[str, ToolDefinition] = {}  # what they say of themselves
        self.add(tools)
        self._sources = sources
        self._checks: dict[str, _Check] = {}
        self._audit = audit
        self.timeout_seconds = timeout_seconds
        self._most = max_result_bytes

    def add(self, tools: Iterable[Tool]) -> None:
        """For tools that themselves have to know which tools there are."""
        self._tools |= {tool.definition.name: tool for tool in tools}
        self._own = {name: tool.definition for name, tool in self._tools.items()}

    async def definitions(self, user_id: UserId) -> Mapping[str, ToolDefinition]:
        """All that this user's agents and canvases can call now; no name of ours can be taken."""
        theirs: dict[str, ToolDefinition] = {}
        for source in self._sources:
            theirs |= {definition.name: definition for definition in await source.definitions(user_id)}
        return {**theirs, **self._own} if theirs else self._own

    async def may_repeat(self, user_id: UserId, name: str) -> bool:
        tool = await self._find(user_id, name)
        return tool is not None and tool.definition.may_repeat

    async def use(self, call: ToolCall, context: ToolContext) -> ToolResult:
        """A failed call is a result too: the model reads why and decides what to do. A lost claim is not: there is nobody to tell."""
        try:
            value = await self.call(call.tool, call.args, context)
        except ClaimLost:
            raise
        except HostError as problem:
            return ToolResult(call.call_id, call.tool, self._audit.redacted(problem.message), is_error=True)
        return ToolResult(call.call_id, call.tool, value)

    async def call(
        self,
        name: str,
        args: Mapping[str, Any],
        context: ToolContext,
        *,
        timeout_seconds: float | None = None,
    ) -> Any:
        """What the tool answers. Raises an error of ours, whatever went wrong in it; one that is cancelled leaves nothing running."""
        tool = await self._find(context.user_id, name)
        if tool is None:
            known = ", ".join(sorted(await self.definitions(context.user_id)))
            raise ToolFailed(tool=name, reason=f"there is no such tool; there are {known}.")
        self._check(tool.definition, args)
        seconds = min(self.timeout_seconds, timeout_seconds or self.timeout_seconds)
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                value = await tool.use(args, context)
        except (HostError, ClaimLost):
            raise
        except TimeoutError as problem:
            if not limit.expired():
                raise self._broken(name, context, problem) from problem
            raise ToolFailed(tool=name, reason=f"took longer than {seconds:g} s and was stopped.") from None
        except Exception as problem:
            raise self._broken(name, context, problem) from problem
        if is_too_deep(value):
            raise ToolFailed(tool=name, reason=f"its result is nested deeper than {MAX_DEPTH} levels.")
        if (size := len(to_json(value).encode())) > self._most:
            raise ToolFailed(
                tool=name,
                reason=f"its result of {size} bytes is over the limit of {self._most}; ask for less.",
            )
        return value

    async def _find(self, user_id: UserId, name: str) -> Tool | None:
        if (ours := self._tools.get(name)) is not None:
            return ours
        for source in self._sources:
            if (theirs := await source.find(user_id, name)) is not None:
                return theirs
        return None

    def _check(self, definition: ToolDefinition, args: Mapping[str, Any]) -> None:
        if is_too_deep(args):
            raise ToolFailed(
                tool=definition.name, reason=f"its arguments are nested deeper than {MAX_DEPTH} levels."
            )
        check = self._checks.get(definition.name)
        if (
            check is None or check.schema != definition.schema
        ):  # a node may come back with another version of its tool
            if len(self._checks) >= MAX_CHECKS:
                self._checks.clear()
            check = self._checks[definition.name] = _Check.of(definition.schema)
        if check.parts * (values := count_values(args)) > MAX_CONCURRENT_CHECKS:
            reason = f"its arguments have {values} values, which is too much to check against its schema of {check.parts} parts; send less."
            raise ToolFailed(tool=definition.name, reason=reason)
        if wrong := next(check.validator.iter_errors(args), None):
            place = "/".join(str(step) for step in wrong.instance_path) or "the arguments"
            raise ToolFailed(tool=definition.name, reason=f"{place}: {wrong.message}")

    def _broken(self, name: str, context: ToolContext, problem: Exception) -> ToolFailed:
        log.error("tool.error", tool=name, exc_info=problem)
        subject = context.claim.run_id if context.claim else context.session_key
        self._audit.record_exception(
            context.principal, "tool.error", problem, subject=subject, details={"tool": name}
        )
        return ToolFailed(tool=name, reason=f"broke ({type(problem).__name__}).")
