"""The agent's loop: ask the model, use the tools it calls, until it has nothing more to call.

Owns the order in which a step becomes durable: the model's answer first, then each call before it is made and each
result before the next. So a worker that takes over finds in the log exactly what has happened.
"""

from collections.abc import Callable
from dataclasses import replace

from easel.core.run.conversation import (
    STEP_BREAK,
    Conversation,
    Step,
    Text,
    Thought,
    ToolCall,
    ToolResult,
    said,
)
from easel.core.run.progress import OUTCOME_UNKNOWN, Progress
from easel.core.run.run import ClaimLost
from easel.core.tool.context import ToolContext
from easel.errors import StepLimit
from easel.host.ports import Model
from easel.host.runs.log_writer import RunLogWriter, retry_until_available
from easel.host.tools.registry import ToolRegistry
from easel.ids import CallId


class HandBack(Exception):
    """The worker is stopping and this is a good place to leave off: between two steps."""


class ToolLoop:
    def __init__(self, model: Model, toolbox: ToolRegistry, *, max_steps: int) -> None:
        self._model = model
        self._toolbox = toolbox
        self._max_steps = max_steps

    async def play(
        self,
        message: str,
        done: Progress,
        log: RunLogWriter,
        should_leave: Callable[[], bool],
        spoken: "Transcript",
    ) -> None:
        """From the last finished step to the end. `spoken` keeps what was said, whatever ends the run."""
        steps = list(done.steps)
        begun = done.begun
        while True:
            spoken.steps = tuple(steps)
            if steps and not steps[-1].is_finished:
                steps[-1] = await self._use_tools(steps[-1], begun, log, should_leave)
                begun = frozenset[CallId]()
                continue
            if steps and not steps[-1].calls:
                return
            if should_leave():
                raise HandBack
            if len(steps) >= self._max_steps:
                raise StepLimit(limit=self._max_steps)
            step = await self._ask(Conversation(message, tuple(steps)), log, spoken)
            steps.append(step)
            spoken.steps = tuple(steps)  # at once: the next wait may be where the run is cancelled
            if step.calls:
                log.write(log.events.step(len(steps), step))
                await log.flush()

    async def _ask(self, conversation: Conversation, log: RunLogWriter, spoken: "Transcript") -> Step:
        lead = STEP_BREAK if said(conversation.steps) else ""
        calls: list[ToolCall] = []
        spoken.unfinished = []
        tools = list(
            (await retry_until_available(lambda: self._toolbox.definitions(log.claim.user_id))).values()
        )
        async for part in self._model.reply(conversation, tools):
            match part:
                case Text(text):
                    log.say(lead + text)
                    lead = ""
                    spoken.unfinished.append(text)
                case Thought(text):
                    log.think(text)
                case ToolCall():
                    calls.append(part)
            await log.breathe()
        text, spoken.unfinished = "".join(spoken.unfinished), []
        return Step(text, tuple(calls))

    async def _use_tools(
        self, step: Step, begun: frozenset[CallId], log: RunLogWriter, should_leave: Callable[[], bool]
    ) -> Step:
        """The calls that have no result yet, in order. RS-38"""
        for call in step.calls[len(step.results) :]:
            if should_leave():
                raise HandBack
            if call.call_id in begun and not await self._may_repeat(call, log):
                result = ToolResult(call.call_id, call.tool, OUTCOME_UNKNOWN, is_error=True)
            else:
                log.write(log.events.calling(call))
                await log.flush()  # nothing touches the world before the log says that it is about to
                result = await self._use(call, log)
            log.write(log.events.called(result))
            await log.flush()
            step = replace(step, results=(*step.results, result))
        return step

    async def _may_repeat(self, call: ToolCall, log: RunLogWriter) -> bool:
        return await retry_until_available(lambda: self._toolbox.may_repeat(log.claim.user_id, call.tool))

    async def _use(self, call: ToolCall, log: RunLogWriter) -> ToolResult:
        try:
            return await self._toolbox.use(call, ToolContext.of_run(log.claim))
        except ClaimLost:  # the tool was the first to hear
            log.lose()
            raise


class Transcript:
    """What the assistant has said so far, for the message that closes the run however it ends."""

    def __init__(self) -> None:
        self.steps: tuple[Step, ...] = ()
        self.unfinished: list[str] = []

    @property
    def text(self) -> str:
        return said((*self.steps, Step("".join(self.unfinished), ())))
