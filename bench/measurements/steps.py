"""Easel's own part of a model step in a session of 1,000 messages: load, decide and store, without the model.

The model answers at once, so all that is left between its answers is Easel's. No turn is left out. The first
step of a run loads what is new in the session; a worker that has nothing in memory loads all of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from typing import TYPE_CHECKING, Any

from bench import our_store
from bench.figures import Figure, percentile, within
from easel.cli.serve import tune_gc
from easel.core.model.choice import ModelChoice, Provider
from easel.core.run.batch import Batch
from easel.core.run.conversation import ProviderData, Step, Text, ToolCall, ToolResult, Usage
from easel.core.run.events import RunEvents
from easel.core.run.limits import LoopLimits
from easel.core.run.run import NewRun
from easel.core.run.status import Status
from easel.core.session.message import message, question
from easel.core.stream.message_text import take_out_runs
from easel.core.tool.definition import ToolDefinition
from easel.host.artifacts.artifacts import Artifacts
from easel.host.audit.audit import Audit
from easel.host.runs.claimed_run import ClaimedRun
from easel.host.runs.context import ContextSource
from easel.host.runs.execution import RunExecution
from easel.host.runs.hidden_updates import HiddenUpdates
from easel.host.runs.images import ImageReader
from easel.host.runs.log_writer import RunLogWriter
from easel.host.runs.tool_loop import ToolLoop
from easel.host.runs.turns import TurnLoader
from easel.host.tools.native import NativeTool, native_tools
from easel.host.tools.registry import ToolRegistry
from easel.ids import OWNER, CallId, SessionId, answer_id, new_run_id
from easel.stores.blobs.store import open_blobs
from tests.support.fixed_model import FixedModel
from tests.support.leases import keep_leases

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from bench.setting import Setting
    from easel.core.run.conversation import Conversation, Part
    from easel.core.run.run import Claim
    from easel.host.ports import Tool
    from easel.stores.postgres import PostgresDatabase

TURNS = 500  # two messages each
STEPS = 4  # of a measured run
SESSION = SessionId("long")
MAX_STEP_MS, MAX_BLOCK_MS = 5.0, 50.0
CHOICE = ModelChoice(Provider.ANTHROPIC, "bench", token_budget=10_000_000)
WORDS = "A piece of text as people and models write it, with some words and a full stop. "


async def steps(setting: Setting) -> list[Figure]:
    """Easel's own part of a model step with a history of 1,000 messages."""
    own: list[float] = []
    cold: list[float] = []
    blocks: list[float] = []
    async with our_store.opened(setting) as (database, _):
        await _fill(database, setting.size(TURNS, 50))
        audit = Audit(database.audit)
        blobs = open_blobs(str(setting.folder / "step-blobs"))
        artifacts = Artifacts(database.artifacts, blobs, max_bytes=10_000_000, grace_seconds=3600)
        with _collecting_as_a_worker():
            for _ in range(setting.size(10, 2)):
                runner = _Runner(database, artifacts, audit)
                async with _longest_block() as block:
                    cold.append((await runner.run())[0])
                    for _ in range(setting.size(10, 3)):
                        own += await runner.run()
                blocks.append(block[0])
        await audit.close()
    setting.say(f"p50 {percentile(own, 0.5):.2f} ms, p99 {percentile(own, 0.99):.2f} ms of {len(own)} steps")
    limits: dict[str, Any] = {"unit": "ms", "what": "limit"}
    return [
        within("own part of a model step, 1,000 messages, p50", percentile(own, 0.5), MAX_STEP_MS, **limits),
        within("the longest block of the event loop by it", max(blocks), MAX_BLOCK_MS, **limits),
        Figure(
            "first step of a worker with nothing in memory, p50",
            f"{percentile(cold, 0.5):.3g} ms",
            "–",
            None,
            "–",
            None,
        ),
    ]


class _InstantModel:
    """Calls a tool in every step but the last, and notes when it was called and when it had answered."""

    is_remote = True

    def __init__(self) -> None:
        self.called_at: list[float] = []
        self.answered_at: list[float] = []
        self.turn_count = 0

    async def reply(
        self,
        conversation: Conversation,
        tools: Sequence[ToolDefinition],  # noqa: ARG002
    ) -> AsyncIterator[Part]:
        self.called_at.append(time.perf_counter())
        self.turn_count = len(conversation.turns)
        yield Text(WORDS)
        if len(self.called_at) < STEPS:
            yield ToolCall(CallId(f"toolu_{len(self.called_at)}"), "gsv__Echo", {"value": WORDS})
        yield Usage(100, 10)
        yield ProviderData(
            "anthropic", {"content": [{"type": "text", "text": WORDS, "signature": "c2ln" * 50}]}
        )
        self.answered_at.append(time.perf_counter())


def _node_like_tools() -> list[Tool]:
    """Return tools with 30 KB of definitions, as several nodes offer: they are stored as an artifact."""
    echo = native_tools()[0]
    text = WORDS[:100]
    schema = {"type": "object", "properties": {f"option{n}": {"description": text} for n in range(5)}}
    return [
        NativeTool(ToolDefinition(f"gsv__Offered{number}", text, schema), echo.use) for number in range(40)
    ]


class _Runner:
    """Executes runs as one worker does, with the turns of the session in memory after the first."""

    def __init__(self, database: PostgresDatabase, artifacts: Artifacts, audit: Audit) -> None:
        self._database = database
        self._artifacts = artifacts
        self._audit = audit
        images = ImageReader(artifacts, max_bytes=1_000_000)
        turns = TurnLoader(database.runs, artifacts, images, max_result_bytes=32_768)
        self._contexts = ContextSource(turns, images, documents=None, max_result_bytes=32_768)
        tools = [*native_tools(), *_node_like_tools()]
        self._tools = ToolRegistry(tools, audit=audit, timeout_seconds=60, max_result_bytes=100_000)

    async def run(self) -> list[float]:
        """Return Easel's own milliseconds of each step of one run."""
        model = _InstantModel()
        leases = keep_leases(self._database, self._artifacts)
        loop = ToolLoop(FixedModel(model, CHOICE), self._tools, self._contexts, leases, limits=LoopLimits())
        execution = RunExecution(
            self._database.runs,
            self._artifacts,
            loop,
            HiddenUpdates(None),
            audit=self._audit,
            timeout_seconds=600,
        )
        claim = await _enqueue_and_claim(self._database)
        run = ClaimedRun(claim, claim_expires_at=time.monotonic() + 600)
        run.log = RunLogWriter(
            claim,
            self._database.runs,
            self._artifacts,
            self._database.notifier,
            self._audit,
            on_cancel_requested=lambda: None,
        )
        began_at = time.perf_counter()
        if not await execution.execute(run, lambda: False):
            raise RuntimeError(f"{claim.run_id} was not executed")
        ended_at = time.perf_counter()
        if len(model.answered_at) != STEPS or not model.turn_count:
            raise RuntimeError(f"{len(model.answered_at)} steps with {model.turn_count} turns were executed")
        # The time before each call of the model; the time after the last answer belongs to the last step.
        waits = zip(model.called_at, [began_at, *model.answered_at], strict=False)
        own = [(called_at - before) * 1_000 for called_at, before in waits]
        own[-1] += (ended_at - model.answered_at[-1]) * 1_000
        return own


@contextlib.contextmanager
def _collecting_as_a_worker() -> Iterator[None]:
    """Collect garbage as rarely as a worker does; with Python's thresholds it is most of a block."""
    thresholds = gc.get_threshold()
    tune_gc()
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


@contextlib.asynccontextmanager
async def _longest_block() -> AsyncIterator[list[float]]:
    """Yield a list whose element is, at the end, the longest time in ms that the event loop did not run."""
    longest = [0.0]

    async def watch() -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            longest[0] = max(longest[0], (now - last) * 1_000 - 1)
            last = now

    watching = asyncio.create_task(watch())
    try:
        yield longest
    finally:
        watching.cancel()
        await asyncio.wait([watching])


async def _enqueue_and_claim(database: PostgresDatabase) -> Claim:
    run_id = new_run_id()
    text = WORDS * 5
    asked = question(run_id, take_out_runs(text))
    await database.runs.enqueue(NewRun(run_id, OWNER, SESSION, text, 3, question=asked))
    [claim] = await our_store.claim(database, our_store.worker(), 1)
    return claim


async def _fill(database: PostgresDatabase, turns: int) -> None:
    """Store turns with one tool call each, as a worker does."""
    for number in range(turns):
        claim = await _enqueue_and_claim(database)
        events = RunEvents(claim.run_id, agent_id="main", node_id="bench")
        call = ToolCall(CallId(f"toolu_{number}"), "gsv__Echo", {"value": WORDS})
        step = Step(
            "Looking.",
            (call,),
            usage=Usage(100, 10),
            provider_data=ProviderData(
                "anthropic", {"content": [{"type": "thinking", "thinking": WORDS * 3}]}
            ),
            prefix="0",
        )
        text = f"Looking.\n\n{WORDS * 5}"
        log = [
            events.step(1, step),
            events.tool_call(call),
            events.tool_result(ToolResult(call.call_id, call.tool, WORDS * 8)),
            *events.end_with_message(answer_id(claim.run_id), text, Status.COMPLETED, None),
        ]
        answer = message(answer_id(claim.run_id), text)
        if await database.runs.append(Batch(claim, 1, log, Status.COMPLETED, answer=answer)) is None:
            raise RuntimeError(f"{claim.run_id} could not be ended")
