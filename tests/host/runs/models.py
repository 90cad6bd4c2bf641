"""A model whose answers are written in the test, and leases that count what they are asked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from easel.core.model.choice import ModelChoice, Provider
from easel.core.run.conversation import ToolCall
from easel.ids import CallId

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from easel.core.run.conversation import Conversation, Part
    from easel.core.run.run import Claim
    from easel.core.tool.definition import ToolDefinition
    from easel.ids import CanvasId, RunId

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


class FakeLeases:
    """Counts activity. `held` are the runs that hold a lease."""

    def __init__(self) -> None:
        self.held: set[RunId] = set()
        self.log: list[str] = []
        self.on_release: Callable[[], Awaitable[None]] | None = None

    def note_checked_out(self, run_id: RunId, canvas_id: CanvasId) -> None:
        self.held.add(run_id)

    def note_checked_in(self, run_id: RunId, canvas_id: CanvasId) -> None:
        self.held.discard(run_id)

    def may_hold(self, run_id: RunId) -> bool:
        return run_id in self.held

    async def note_activity(self, run_id: RunId) -> None:
        self.log.append("activity")

    async def renew_in_flight(self, run_ids: Sequence[RunId]) -> None:
        self.log.append(f"in flight: {len(run_ids)}")

    async def release(self, claim: Claim) -> None:
        if claim.run_id in self.held:
            self.held.discard(claim.run_id)
            self.log.append("release")
            if self.on_release is not None:
                await self.on_release()
