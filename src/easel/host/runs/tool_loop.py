"""The agent's loop: ask the model, run the tools that it calls, until it calls none.

Owns the order in which a step becomes durable: the model's answer, then each call before it is made and each
result before the next call. So a worker that takes over the run finds in its log which calls were started and
which have a result.
"""

from collections.abc import Callable
from dataclasses import replace

from easel.core.run.conversation import (
    STEP_BREAK,
    Conversation,
    ProviderData,
    Step,
    Text,
    Thought,
    ToolCall,
    ToolResult,
    Usage,
    assistant_text,
    to_conversation,
)
from easel.core.run.progress import OUTCOME_UNKNOWN, Progress
from easel.core.run.run import ClaimLost
from easel.core.tool.context import ToolContext
from easel.errors import StepLimit
from easel.host.ports import ModelSource
from easel.host.runs.log_writer import RunLogWriter, retry_until_available
from easel.host.tools.registry import ToolRegistry
from easel.ids import CallId


class ReleaseRun(Exception):
    """The worker stops while the run is between two steps or calls: the run goes back into the queue."""


class Transcript:
    """The assistant's text so far, for the closing message of a completed, failed or cancelled run."""

    def __init__(self) -> None:
        self.is_loaded = False  # whether `steps` has the steps of earlier attempts
        self.steps: tuple[Step, ...] = ()
        self.unfinished: list[str] = []

    @property
    def text(self) -> str:
        return assistant_text((*self.steps, Step("".join(self.unfinished), ())))


class ToolLoop:
    def __init__(self, models: ModelSource, tools: ToolRegistry, *, max_steps: int) -> None:
        self._models = models
        self._tools = tools
        self._max_steps = max_steps

    async def run(
        self,
        message: str,
        progress: Progress,
        log: RunLogWriter,
        should_release: Callable[[], bool],
        transcript: Transcript,
    ) -> None:
        """Execute the run from its last finished step to its end, and keep the transcript current."""
        steps = list(progress.steps)
        started_calls = progress.started_calls
        transcript.is_loaded = True
        while True:
            transcript.steps = tuple(steps)
            if steps and not steps[-1].is_finished:
                steps[-1] = await self._run_tools(steps[-1], started_calls, log, should_release)
                started_calls = frozenset[CallId]()
                continue
            if steps and not steps[-1].calls:
                return
            if should_release():
                raise ReleaseRun
            if len(steps) >= self._max_steps:
                raise StepLimit(limit=self._max_steps)
            step = await self._ask_model(to_conversation(message, steps), log, transcript)
            steps.append(step)
            transcript.steps = tuple(steps)  # before the next `await`, where the run may be cancelled
            if step.calls:
                log.write(log.events.step(len(steps), step))
                await log.flush()

    async def _ask_model(self, conversation: Conversation, log: RunLogWriter, transcript: Transcript) -> Step:
        lead = STEP_BREAK if assistant_text(conversation.steps) else ""
        calls: list[ToolCall] = []
        usage: Usage | None = None
        provider_data: ProviderData | None = None
        transcript.unfinished = []
        definitions = await retry_until_available(lambda: self._tools.definitions(log.claim.user_id))
        _, model = await retry_until_available(lambda: self._models.choose(log.claim.user_id))
        async for part in model.reply(conversation, list(definitions.values())):
            match part:
                case Text(text):
                    log.write_text(lead + text)
                    lead = ""
                    transcript.unfinished.append(text)
                case Thought(text):
                    log.write_thought(text)
                case ToolCall():
                    calls.append(part)
                case Usage():
                    usage = part
                case ProviderData():
                    provider_data = part
            await log.apply_backpressure()
        text, transcript.unfinished = "".join(transcript.unfinished), []
        return Step(text, tuple(calls), usage=usage, provider_data=provider_data)

    async def _run_tools(
        self,
        step: Step,
        started_calls: frozenset[CallId],
        log: RunLogWriter,
        should_release: Callable[[], bool],
    ) -> Step:
        """Make the calls that have no result yet, in order. RS-38

        A call that an earlier attempt started is repeated only if its tool allows that; otherwise its result
        is an error that says that the outcome is unknown.
        """
        for call in step.calls[len(step.results) :]:
            if should_release():
                raise ReleaseRun
            if call.call_id in started_calls and not await self._may_repeat(call, log):
                result = ToolResult(call.call_id, call.tool, OUTCOME_UNKNOWN, is_error=True)
            else:
                log.write(log.events.tool_call(call))
                await log.flush()  # a tool may have effects, so its call must be durable first
                result = await self._run_tool(call, log)
            log.write(log.events.tool_result(result))
            await log.flush()
            step = replace(step, results=(*step.results, result))
        return step

    async def _may_repeat(self, call: ToolCall, log: RunLogWriter) -> bool:
        return await retry_until_available(lambda: self._tools.may_repeat(log.claim.user_id, call.tool))

    async def _run_tool(self, call: ToolCall, log: RunLogWriter) -> ToolResult:
        try:
            return await self._tools.use(call, ToolContext.of_run(log.claim))
        except ClaimLost:
            log.mark_claim_lost()
            raise
