"""A model whose answers are written in the test, and leases that count what they are asked."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from easel.core.model.choice import ModelChoice, Provider
from easel.core.run.conversation import ToolCall
from easel.host.documents.leases import LeaseKeeper
from easel.ids import CallId

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from easel.core.run.conversation import Conversation, Part
    from easel.core.run.run import Claim
    from easel.core.tool.definition import ToolDefinition
    from easel.ids import RunId

CHOICE = ModelChoice(Provider.ANTHROPIC, "test-model", token_budget=100_000)


def calls(tool: str, *, call_id: str = "call_1", **args: Any) -> ToolCall:
    return ToolCall(CallId(call_id), tool, args)


class Pause:
    """Stops an answer until the test lets it go on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.may_go_on = asyncio.Event()


class RemoteModel:
    """Gives the answers in order, each a list of parts, and records what it was given."""

    is_remote = True

    def __init__(self, *answers: Sequence[Part | Pause | Exception]) -> None:
        self._answers = list(answers)
        self.conversations: list[Conversation] = []
        self.tools: list[Sequence[ToolDefinition]] = []
        self.closed_count = 0  # answers whose request has ended

    async def reply(self, conversation: Conversation, tools: Sequence[ToolDefinition]) -> AsyncIterator[Part]:
        self.conversations.append(conversation)
        self.tools.append(tools)
        answer = self._answers[min(len(self.conversations), len(self._answers)) - 1]
        try:
            for part in answer:
                if isinstance(part, Exception):
                    raise part
                if isinstance(part, Pause):
                    part.reached.set()
                    await part.may_go_on.wait()
                else:
                    yield part
        finally:
            self.closed_count += 1


class FakeLeases(LeaseKeeper):
    """Logs the activity, renewals and releases of the runs that hold a lease. Stores nothing."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        nothing: Any = SimpleNamespace(store=None)
        super().__init__(nothing, nothing, nothing, clock=clock)
        self.log: list[str] = []
        self.on_release: Callable[[], Awaitable[None]] | None = None

    async def note_activity(self, run_id: RunId) -> None:
        if self.may_hold(run_id):
            self.log.append("activity")

    async def _renew(self, run_ids: list[RunId]) -> None:
        self.log.append(f"in flight: {len(run_ids)}")

    async def release(self, claim: Claim) -> None:
        if self.may_hold(claim.run_id):
            self._forget(claim.run_id)
            self.log.append("release")
            if self.on_release is not None:
                await self.on_release()
