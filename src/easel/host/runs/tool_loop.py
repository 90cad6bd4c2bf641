"""The agent's loop: ask the model, run the tools that it calls, until it calls none.

Owns the order in which a step becomes durable: the model's answer, then each call before it is made and each
result before the next call. So a worker that takes over the run finds in its log which calls were started and
which have a result. Also owns when a step is published, and the limits of a loop. Does not know how a
conversation is loaded (`context`), or how leases are kept.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace

from easel.core.run.conversation import (
    STEP_BREAK,
    Part,
    ProviderData,
    Repeated,
    Step,
    Text,
    Thought,
    ToolCall,
    ToolResult,
    Usage,
    assistant_text,
    total_usage,
)
from easel.core.run.limits import LoopLimits, check_limits, check_rejections
from easel.core.run.progress import OUTCOME_UNKNOWN, Progress
from easel.core.run.run import ClaimLost
from easel.core.tool.context import ToolContext
from easel.host.ports import Leases, ModelSource, RunLease
from easel.host.runs.context import ContextSource, RunContext
from easel.host.runs.log_writer import RunLogWriter, retry_until_available
from easel.host.tools.registry import ToolRegistry
from easel.host.usage import AccountBudget
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

    @property
    def usage(self) -> Usage | None:
        return total_usage(self.steps)


class ToolLoop:
    def __init__(
        self,
        models: ModelSource,
        tools: ToolRegistry,
        contexts: ContextSource,
        leases: Leases,
        *,
        limits: LoopLimits,
        budget: AccountBudget | None = None,
    ) -> None:
        self._models = models
        self._tools = tools
        self._contexts = contexts
        self._leases = leases
        self._limits = limits
        self._budget = budget

    async def run(
        self,
        progress: Progress,
        updates: tuple[str, ...],
        log: RunLogWriter,
        should_release: Callable[[], bool],
        transcript: Transcript,
    ) -> None:
        """Execute the run from its last finished step to its end, and keep the transcript current.

        The lease of a document ends with the loop. When this worker stops, the run goes on elsewhere with the
        same lease. CT-16
        """
        context = RunContext(self._contexts, log.claim, updates, progress)
        async with self._leases.of(log.claim) as lease:
            try:
                await self._run(context, progress, log, should_release, transcript, lease=lease)
            except (ReleaseRun, asyncio.CancelledError):
                lease.is_kept = should_release()
                raise
            finally:
                lease.is_kept = lease.is_kept or log.claim_lost

    async def _run(
        self,
        context: RunContext,
        progress: Progress,
        log: RunLogWriter,
        should_release: Callable[[], bool],
        transcript: Transcript,
        *,
        lease: RunLease,
    ) -> None:
        steps = list(progress.steps)
        started_calls = progress.started_calls
        transcript.is_loaded = True
        if progress.unfinished:
            log.repeat_step(1)
        while True:
            transcript.steps = tuple(steps)
            if steps and not steps[-1].is_finished:
                steps[-1] = await self._run_tools(steps[-1], started_calls, log, should_release, lease)
                started_calls = frozenset[CallId]()
                continue
            if steps and not steps[-1].calls:
                return
            if should_release():
                raise ReleaseRun
            check_rejections(steps, self._limits)
            check_limits(steps, self._limits)
            step = await self._ask_within_budget(context, steps, log, transcript, lease)
            steps.append(step)
            transcript.steps = tuple(steps)  # before the next `await`, where the run may be cancelled
            # A step of a model that was given the session is logged for the sake of what it was given.
            if step.calls or step.usage or step.provider_data or context.start is not None:
                # A step without calls is the last one, so no later attempt needs the instructions.
                instructions = context.take_unstored() if step.calls else None
                log.write(log.events.step(len(steps), step, context.start, instructions))
            if step.calls:
                await log.flush()

    # -- the model -------------------------------------------------------------------------------------------

    async def _ask_within_budget(
        self,
        context: RunContext,
        steps: Sequence[Step],
        log: RunLogWriter,
        transcript: Transcript,
        lease: RunLease,
    ) -> Step:
        """Return the model's answer, and count its tokens. Raises if the account has used up its budget."""
        budget, account_id = self._budget, log.claim.account_id
        if budget is None:
            return await self._ask_model(context, steps, log, transcript, lease)
        await retry_until_available(lambda: budget.check_step(account_id))
        step = await self._ask_model(context, steps, log, transcript, lease)
        await retry_until_available(lambda: budget.count_tokens(account_id, step.usage))
        return step

    async def _ask_model(
        self,
        context: RunContext,
        steps: Sequence[Step],
        log: RunLogWriter,
        transcript: Transcript,
        lease: RunLease,
    ) -> Step:
        """Return the model's answer.

        While the run holds a lease, nothing of the answer is published before it is complete. An answer
        without calls ends the lease first. CT-46, RS-70
        """
        account_id = log.claim.account_id
        await lease.activity()
        definitions = await retry_until_available(lambda: self._tools.definitions(account_id))
        choice, model = await retry_until_available(lambda: self._models.choose(account_id))
        offered = [tool for tool in definitions.values() if tool.is_for_agents]
        conversation, tools = await retry_until_available(
            lambda: context.build(choice, model, offered, steps)
        )
        answer = _Answer(log, transcript, assistant_text(tuple(steps)), is_published=not lease.is_held)
        parts = model.reply(conversation, tools)
        try:
            with lease.waiting(is_remote=model.is_remote):
                async for part in parts:
                    answer.add(part)
                    await lease.activity()
                    await log.apply_backpressure()
        finally:
            if isinstance(parts, AsyncGenerator):  # end the provider's request if this task is cancelled
                await parts.aclose()
        await lease.activity()
        if not answer.calls and lease.is_held:
            await lease.release()
        return replace(answer.complete(), prefix=context.prefix)

    # -- tools -----------------------------------------------------------------------------------------------

    async def _run_tools(
        self,
        step: Step,
        started_calls: frozenset[CallId],
        log: RunLogWriter,
        should_release: Callable[[], bool],
        lease: RunLease,
    ) -> Step:
        """Make the calls that have no result yet, in order. RS-38

        A call that an earlier attempt started is repeated only if its tool allows that; otherwise its result
        is an error that says that the outcome is unknown. Calls over the limit of an answer are refused.
        """
        limit = self._limits.max_calls
        for call in step.calls[len(step.results) : limit]:
            if should_release():
                raise ReleaseRun
            await lease.activity()
            if call.call_id in started_calls and not await self._may_repeat(call, log):
                result = ToolResult(call.call_id, call.tool, OUTCOME_UNKNOWN, is_error=True)
            else:
                log.write(log.events.tool_call(call))
                await log.flush()  # a tool may have effects, so its call must be durable first
                try:
                    result = await self._tools.use(call, ToolContext.of_run(log.claim))
                except ClaimLost:
                    log.mark_claim_lost()
                    raise
            await lease.activity()
            log.write(log.events.tool_result(result))
            await log.flush()
            step = replace(step, results=(*step.results, result))
        reason = f"Not called: an answer may have at most {limit} calls. Call it in the next one."
        rest = step.calls[len(step.results) :]
        refused = [ToolResult(call.call_id, call.tool, reason, is_error=True) for call in rest]
        for call, result in zip(rest, refused, strict=True):
            log.write(log.events.tool_call(call))
            log.write(log.events.tool_result(result))
            await log.apply_backpressure()
        await log.flush()
        return replace(step, results=(*step.results, *refused))

    async def _may_repeat(self, call: ToolCall, log: RunLogWriter) -> bool:
        return await retry_until_available(lambda: self._tools.may_repeat(log.claim.account_id, call.tool))


class _Answer:
    """Collects the parts of one answer, and publishes its text at once or when it is complete."""

    def __init__(
        self, log: RunLogWriter, transcript: Transcript, text_before: str, *, is_published: bool
    ) -> None:
        self._log = log
        self._transcript = transcript
        self._lead = self._first_lead = STEP_BREAK if text_before else ""
        self._is_published = is_published
        self._held: list[Text | Thought] = []
        self.calls: list[ToolCall] = []
        self._usage: Usage | None = None
        self._provider_data: ProviderData | None = None
        transcript.unfinished = []
        log.events.try_number = 1

    def add(self, part: Part) -> None:
        match part:
            case Text() | Thought():
                if self._is_published:
                    self._publish(part)
                else:
                    self._held.append(part)
            case ToolCall():
                self.calls.append(part)
            case Usage():
                self._usage = part
            case ProviderData():
                self._provider_data = part
            case Repeated(number):
                self._held.clear()
                if self._is_published:
                    self._log.repeat_step(number)
                    self._lead, self._transcript.unfinished = self._first_lead, []

    def _publish(self, part: Text | Thought) -> None:
        if isinstance(part, Thought):
            self._log.write_thought(part.text)
            return
        self._log.write_text(self._lead + part.text)
        self._lead = ""
        self._transcript.unfinished.append(part.text)

    def complete(self) -> Step:
        """Publish what was held back, and return the step."""
        for part in self._held:
            self._publish(part)
        text, self._transcript.unfinished = "".join(self._transcript.unfinished), []
        return Step(text, tuple(self.calls), usage=self._usage, provider_data=self._provider_data)
