"""The time of the provider libraries for a request with a history of 1,000 messages, and the longest stall
of the event loop during it.

A server refuses each request after reading it, so that the figure is the cost of making it: Easel's own
conversion, the library's and the SDK's.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from typing import TYPE_CHECKING

from bench.figures import Figure, at_most, median, within
from bench.setting import ROOT, Setting
from easel.core.model.choice import ModelChoice, Provider
from easel.core.run.conversation import Conversation, Step, ToolCall, ToolResult, Turn
from easel.core.tool.definition import ToolDefinition
from easel.errors import ModelFailed
from easel.ids import CallId, RunId
from easel.llm.build import Models, RequestSettings, endpoint_of
from easel.llm.retries import NO_RETRIES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from easel.host.ports.models import Model

TURNS = 250  # of four messages: the question, a call, its result, the answer
TEXT = "The release waits for the tests of the second node, which take four minutes. " * 4
MAX_STALL_MS = 50
TOOLS = [
    ToolDefinition(
        f"gsv__Tool{number}",
        "Does something useful with a document.",
        {"type": "object", "properties": {"id": {"type": "string"}, "lines": {"type": "integer"}}},
    )
    for number in range(20)
]


async def providers(setting: Setting) -> list[Figure]:
    """Time of library and SDK for 1,000 messages, and the longest stall of the event loop."""
    figures: list[Figure] = []
    models = Models(RequestSettings(NO_RETRIES))
    async with _sink() as port:
        for provider in Provider:
            if provider is Provider.SCRIPTED:
                continue
            choice = ModelChoice(provider, "some-model", "key", f"http://127.0.0.1:{port}")
            model = models.build_model(choice)
            with contextlib.suppress(ModelFailed):
                await anext(model.reply(Conversation("Hi"), TOOLS))  # loads the library
            conversation, own_ms = _conversation(provider, endpoint_of(choice)), 0.0
            times: list[float] = []
            stalls: list[float] = []
            for _ in range(setting.size(7, 2)):
                own_ms = _convert_ms(conversation, choice)
                took_ms, stall_ms = await _ask(model, conversation)
                times.append(took_ms)
                stalls.append(stall_ms)
            setting.say(f"{provider.value}: {median(times):.0f} ms, longest stall {max(stalls):.1f} ms")
            figures += [
                at_most(
                    f"{provider.value}: a request with {TURNS * 4:,} messages",
                    median(times),
                    own_ms,
                    unit="ms",
                    bar=None,
                    against="Easel's own conversion",
                ),
                within(
                    f"{provider.value}: longest stall of the event loop",
                    median(stalls),
                    MAX_STALL_MS,
                    unit="ms",
                    what="at most",
                ),
            ]
    await models.close()
    return figures


def _convert_ms(conversation: Conversation, choice: ModelChoice) -> float:
    from easel.llm.conversation import MessageForm, to_messages  # noqa: PLC0415 - loads a library

    started = time.perf_counter()
    to_messages(conversation, MessageForm(choice.provider.value, endpoint_of(choice)))
    return (time.perf_counter() - started) * 1000


async def _ask(model: Model, conversation: Conversation) -> tuple[float, float]:
    """Return the duration of a request and the longest stall of this event loop during it, in ms."""
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            longest, last = max(longest, now - last), now

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0.01)
    longest = 0.0
    started = time.perf_counter()
    with contextlib.suppress(ModelFailed):
        await anext(model.reply(conversation, TOOLS))
    took = time.perf_counter() - started
    watching.cancel()
    return took * 1000, longest * 1000


def _conversation(provider: Provider, endpoint: str) -> Conversation:
    """Return a session of 1,000 messages whose answers have the provider's own data."""
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart  # noqa: PLC0415 - loads a library

    from easel.llm.conversation import MessageForm, to_provider_data  # noqa: PLC0415

    form = MessageForm(provider.value, endpoint)
    turns: list[Turn] = []
    for number in range(TURNS):
        call = ToolCall(CallId(f"call_{number}"), "gsv__Tool1", {"id": "doc", "lines": number})
        asked = ModelResponse([ToolCallPart("gsv__Tool1", call.args, call.call_id)])
        result = ToolResult(call.call_id, call.tool, {"text": TEXT})
        steps = (
            Step("", (call,), (result,), provider_data=to_provider_data(asked, form)),
            Step(TEXT, (), provider_data=to_provider_data(ModelResponse([TextPart(TEXT)]), form)),
        )
        turns.append(Turn(RunId(f"run_{number}"), TEXT, steps))
    return Conversation("And now?", turns=tuple(turns), system=TEXT * 10)


@contextlib.asynccontextmanager
async def _sink() -> AsyncIterator[int]:
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.provider_sink",
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert program.stdin is not None
    assert program.stdout is not None
    try:
        yield int(await program.stdout.readline())
    finally:
        program.stdin.close()
        await program.wait()
