"""Direct calls of a tool by a person, without a canvas: `tool.invoke`. RS-67

Owns who may call and which calls are recorded. The registry checks the arguments and limits time and result.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from easel.core.action.policy import check_invocation
from easel.core.canvas.actions import Approval, Confirm
from easel.core.principal import MAIN_AGENT, Principal, is_shared
from easel.core.session.session import main_session_key
from easel.core.tool.context import ToolContext
from easel.core.tool.node import why_missing
from easel.errors import Forbidden, HostError, NotFound, TooMany
from easel.host.actions.transitions import FindApproval
from easel.host.audit.audit import Audit
from easel.host.tools.registry import ToolRegistry

MAX_RUNNING = 1_000  # calls of one instance
ONLY_PEOPLE = "Only a person can call a tool directly."


class ToolInvocations:
    def __init__(
        self, tools: ToolRegistry, audit: Audit, *, floor: Confirm, approval_by: FindApproval
    ) -> None:
        self._tools = tools
        self._audit = audit
        self._floor = floor
        self._approval_by = approval_by
        self._running = 0

    async def invoke(self, principal: Principal, name: str, args: Mapping[str, Any]) -> Any:
        """Call a tool and return its result. Raises `Forbidden`, `NotFound`, or the error of the tool.

        The tool works in the main session. If the caller is cancelled, so is the tool.
        """
        try:
            await self._check(principal, name, args)
        except HostError as problem:
            self._audit.record_throttled(
                principal, "guardrail.refused", details={"tool": name[:200], "problem": problem.message}
            )
            raise
        context = ToolContext(principal, main_session_key(MAIN_AGENT))
        outcome: dict[str, Any] = {"status": "failed"}
        self._running += 1
        try:
            result = await self._tools.call(name, args, context)
        except HostError as problem:
            outcome["problem"] = problem.message
            raise
        except asyncio.CancelledError:
            outcome = {"status": "cancelled"}
            raise
        else:
            outcome = {"status": "completed"}
            return result
        finally:
            self._running -= 1
            self._audit.note(principal, "tool.invoked", subject=name, details=outcome)

    async def _check(self, principal: Principal, name: str, args: Mapping[str, Any]) -> None:
        if not principal.is_person:
            raise Forbidden(problem=ONLY_PEOPLE)
        definitions = await self._tools.definitions(principal.account_id)
        if (definition := definitions.get(name)) is None:
            short = name[:200]
            why = why_missing(short, definitions, self._tools.missing)
            raise NotFound.with_message(f"There is no tool {short}: {why}", what="tool", id=short)
        approval_by = (
            await self._approval_by(principal.account_id) if is_shared(principal) else Approval.ANYONE
        )
        check_invocation(definition, args, floor=self._floor, approval_by=approval_by)
        if self._running >= MAX_RUNNING:
            raise TooMany(what="direct tool calls", limit=MAX_RUNNING)
