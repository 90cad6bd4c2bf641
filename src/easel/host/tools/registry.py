"""The registry of tools, by name: Easel's own and those of sources such as nodes.

Every tool call, by an agent or a canvas action, goes through the registry: it validates the arguments, and
limits the duration of the call and the size of the result. CV-03
"""

import asyncio
import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import jsonschema_rs
import structlog

from easel.core.action.argument_warnings import ArgumentError
from easel.core.run.conversation import ToolCall, ToolResult
from easel.core.run.run import ClaimLost
from easel.core.secret.mask import ACTIVE, SecretMask
from easel.core.stream.json_text import to_json
from easel.core.tool.context import ToolContext
from easel.core.tool.definition import ToolDefinition
from easel.core.tool.node import why_missing
from easel.core.tool.offer import count_schema_parts, count_values
from easel.core.validation import MAX_DEPTH, is_too_deep, refuse
from easel.errors import BadInput, HostError, ToolFailed
from easel.host.audit.audit import Audit
from easel.host.ports import RemoteTool, SecretSource, Tool, ToolSource
from easel.host.tools.native import NativeTool
from easel.host.tools.schema import build_validator, find_errors
from easel.host.tools.secrets import check_takes_secrets, open_secrets
from easel.ids import AccountId

MAX_CACHED_VALIDATORS = 10_000
# Schema parts times argument values. Validation blocks the event loop: at this cost for about 0.1 s.
MAX_VALIDATION_COST = 5_000_000
MAX_QUOTED_ARGS = 200  # characters

log = structlog.get_logger("tools")


@dataclass(frozen=True, slots=True)
class _Validator:
    schema: Mapping[str, Any]
    validator: jsonschema_rs.Validator
    part_count: int


class ToolRegistry:
    def __init__(
        self,
        tools: Iterable[Tool],
        *,
        audit: Audit,
        timeout_seconds: float,
        max_result_bytes: int,
        sources: Sequence[ToolSource] = (),
        secrets: SecretSource | None = None,
    ) -> None:
        self._tools: dict[str, Tool] = {}
        self._own_definitions: Mapping[str, ToolDefinition] = {}
        self.missing: Mapping[str, str] = {}  # tools that this machine cannot offer, with the reason of each
        self.add(tools)
        self._sources = sources
        self._validators: dict[str, _Validator] = {}
        self._audit = audit
        self._secrets = secrets
        self.timeout_seconds = timeout_seconds
        self._max_result_bytes = max_result_bytes

    def add(self, tools: Iterable[Tool], *, are_offered: bool = True) -> None:
        """Add tools that are built after this registry. One that is not offered can still be called."""
        added = {tool.definition.name: tool for tool in tools}
        self._tools |= added
        if are_offered:
            definitions = {name: tool.definition for name, tool in added.items()}
            self._own_definitions = {**self._own_definitions, **definitions}

    async def definitions(self, account_id: AccountId) -> Mapping[str, ToolDefinition]:
        """Return all tools that this user's agents and canvases can call now.

        A source cannot replace one of Easel's own tools.
        """
        offered: dict[str, ToolDefinition] = {}
        for source in self._sources:
            offered |= {definition.name: definition for definition in await source.definitions(account_id)}
        return {**offered, **self._own_definitions} if offered else self._own_definitions

    async def missing_secrets(self, account_id: AccountId, names: Collection[str]) -> list[str]:
        """Return the names that no secret of this user has."""
        return await self._secrets.find_missing(account_id, names) if self._secrets and names else []

    async def may_repeat(self, account_id: AccountId, name: str) -> bool:
        tool = await self._find(account_id, name)
        return tool is not None and tool.definition.may_repeat

    async def use(self, call: ToolCall, context: ToolContext) -> ToolResult:
        """Call a tool for a model and return its result.

        A failure is returned as an error result, which the model reads. Raises only `ClaimLost`.
        """
        try:
            if not isinstance(call.args, dict):
                raise BadInput(problem=_describe_broken(call))
            value = await self.call(call.tool, cast("dict[str, Any]", call.args), context)
        except ClaimLost:
            raise
        except HostError as problem:
            return ToolResult(call.call_id, call.tool, self._audit.redact(problem.message), is_error=True)
        return ToolResult(call.call_id, call.tool, value)

    async def call(
        self,
        name: str,
        args: Mapping[str, Any],
        context: ToolContext,
        *,
        timeout_seconds: float | None = None,
    ) -> Any:
        """Call a tool and return its result. Raises a `HostError` for any failure of the tool.

        The names of secrets in the context are resolved here, unless the tool is of another instance.
        """
        tool = await self._find(context.account_id, name)
        if tool is None:
            known = await self.definitions(context.account_id)
            why = why_missing(name, known, self.missing)
            raise ToolFailed(
                tool=name, reason=f"there is no such tool now: {why} There are {', '.join(sorted(known))}."
            )
        if not context.secrets:
            return await self._call(tool, args, context, timeout_seconds)
        check_takes_secrets(tool.definition, context.secrets)
        if isinstance(tool, RemoteTool):
            # The arguments have names where values belong, so the node checks them.
            return await self._call(tool, args, context, timeout_seconds, is_checked=False)
        async with open_secrets(self._secrets, context.account_id, context.secrets) as opened:
            resolved = replace(context, env=opened.env, on_output=opened.mask_output(context.on_output))
            value = await self._call(tool, opened.fill(args), resolved, timeout_seconds)
            masked = await opened.mask_value(value)
            self._check_result(name, masked)  # a name can be longer than the value that it replaces
            return masked

    async def _call(
        self,
        tool: Tool,
        args: Mapping[str, Any],
        context: ToolContext,
        timeout_seconds: float | None,
        *,
        is_checked: bool = True,
    ) -> Any:
        name, use = tool.definition.name, tool.use
        try:
            if is_checked:
                self.check_arguments(tool.definition, args)
        except BadInput as problem:
            if not isinstance(tool, NativeTool) or tool.refuse is None:
                raise
            use = partial(tool.refuse, problem)
        seconds = min(self.timeout_seconds, timeout_seconds or self.timeout_seconds)
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                value = await use(args, context)
        except (HostError, ClaimLost):
            raise
        except TimeoutError as problem:
            if not limit.expired():
                raise self._report_exception(name, context, problem) from problem
            raise ToolFailed(tool=name, reason=f"took longer than {seconds:g} s and was stopped.") from None
        except Exception as problem:
            raise self._report_exception(name, context, problem) from problem
        self._check_result(name, value)
        return value

    async def _find(self, account_id: AccountId, name: str) -> Tool | None:
        if (own := self._tools.get(name)) is not None:
            return own
        for source in self._sources:
            if (offered := await source.find(account_id, name)) is not None:
                return offered
        return None

    def check_arguments(self, definition: ToolDefinition, args: Mapping[str, Any]) -> None:
        """Raise `BadInput` if the arguments do not fit the tool's schema."""
        name = definition.name
        if is_too_deep(args):
            refuse(name, f"the arguments must not be nested deeper than {MAX_DEPTH} levels.")
        cached = self._get_validator(definition)
        if cached.part_count * (value_count := count_values(args)) > MAX_VALIDATION_COST:
            refuse(
                name,
                f"the arguments have {value_count} values, which is too much to check "
                f"against its schema of {cached.part_count} parts; send less.",
            )
        if error := next(cached.validator.iter_errors(args), None):
            place = "/".join(str(step) for step in error.instance_path) or "the arguments"
            refuse(name, f"{place}: {error.message}")

    def find_argument_errors(
        self, definition: ToolDefinition, args: Mapping[str, Any]
    ) -> Iterator[ArgumentError]:
        """Return what is wrong with the arguments of a spec; the caller limits their size."""
        return find_errors(self._get_validator(definition).validator, args)

    def _get_validator(self, definition: ToolDefinition) -> _Validator:
        name, schema = definition.name, definition.schema
        cached = self._validators.get(name)
        # A node may reconnect with another schema for the same tool.
        if cached is None or cached.schema != schema:
            if len(self._validators) >= MAX_CACHED_VALIDATORS:
                self._validators.clear()
            cached = _Validator(schema, build_validator(schema), count_schema_parts(schema))
            self._validators[name] = cached
        return cached

    def _check_result(self, name: str, value: Any) -> None:
        if is_too_deep(value):
            raise ToolFailed(tool=name, reason=f"its result is nested deeper than {MAX_DEPTH} levels.")
        limit = self._max_result_bytes
        if (size := len(to_json(value).encode())) > limit:
            raise ToolFailed(
                tool=name, reason=f"its result of {size} bytes is over the limit of {limit}; ask for less."
            )

    def _report_exception(self, name: str, context: ToolContext, problem: Exception) -> ToolFailed:
        """Log and audit an unexpected exception of a tool. Returns the error for the caller."""
        mask = ACTIVE.get()
        logged = problem if mask is None else _without_secrets(problem, mask)
        log.error("tool.error", tool=name, exc_info=logged)
        subject = context.claim.run_id if context.claim else context.session_key
        self._audit.record_exception(
            context.principal, "tool.error", logged, subject=subject, details={"tool": name}
        )
        return ToolFailed(tool=name, reason=f"raised {type(problem).__name__}.")


def _without_secrets(problem: Exception, mask: SecretMask) -> Exception:
    """Return an exception for logs whose texts have no secret; its cause is described in its message."""
    described = "".join(traceback.format_exception(problem))
    return RuntimeError(mask.text(described))


def _describe_broken(call: ToolCall) -> str:
    """Return the error for arguments that a model wrote, but that are no JSON object."""
    sent = call.args if isinstance(call.args, str) else to_json(call.args)
    start = sent[:MAX_QUOTED_ARGS]
    more = "…" if len(sent) > len(start) else ""
    return f"{call.tool}: the arguments must be a complete JSON object, not {start}{more}; call it again."
