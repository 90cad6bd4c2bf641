"""A conversation with a model as the tool loop has it, for tests, with tools that answer at once.

Steps pass through JSON, as they do on their way through the run's log to a worker that takes over.
"""

import base64
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from easel.core.model.choice import ModelChoice, Provider
from easel.core.run.conversation import (
    Conversation,
    Image,
    Part,
    ProviderData,
    Step,
    Text,
    Thought,
    ToolCall,
    ToolResult,
    Turn,
    Usage,
)
from easel.core.tool.definition import ToolDefinition
from easel.host.ports.models import Model
from easel.ids import CallId, RunId
from tests.llm.vendors.server import KEY

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
IMAGE = Image("art_1", "image/png", PIXEL)

CLOCK = ToolDefinition(
    "gsv__Clock",
    "Tell the time.",
    {"type": "object", "properties": {"zone": {"type": "string"}}, "additionalProperties": False},
)
# The name of a node's tool: longer than a provider takes, with dots and colons
NODE_TOOL = ToolDefinition(
    f"{'build-farm.eu:7' * 4}__Run.Tests:All",
    "Run the tests.",
    {
        "type": "object",
        "properties": {
            "command": {"type": "string", "x-shell": True},
            "level": {"const": 3},
            "mode": {"oneOf": [{"type": "string"}, {"type": "null"}]},
            "options": {"$ref": "#/$defs/Options"},
        },
        "$defs": {
            "Options": {
                "type": "object",
                "properties": {"again": {"$ref": "#/$defs/Options"}},
                "additionalProperties": {"type": "string"},
            }
        },
        "required": ["command"],
        "if": {"properties": {"level": {"const": 3}}},
        "then": {"required": ["options"]},
        "additionalProperties": False,
    },
)
TOOLS = (CLOCK, NODE_TOOL)


def choice_of(
    provider: str, base_url: str, *, model: str = "some-model", key: str = KEY, effort: str = ""
) -> ModelChoice:
    return ModelChoice(Provider(provider), model, key, base_url, effort)


async def ask(
    model: Model, conversation: Conversation, tools: Sequence[ToolDefinition] = TOOLS
) -> list[Part]:
    return [part async for part in model.reply(conversation, tools)]


async def collect(parts: AsyncIterator[Part], into: list[Part]) -> None:
    async for part in parts:
        into.append(part)  # noqa: PERF401 - kept also if a later part fails


def to_step(parts: Sequence[Part]) -> Step:
    """Return the step as the loop stores it."""
    text = "".join(part.text for part in parts if isinstance(part, Text))
    calls = tuple(part for part in parts if isinstance(part, ToolCall))
    usage = next((part for part in parts if isinstance(part, Usage)), None)
    data = next((part for part in parts if isinstance(part, ProviderData)), None)
    return Step(text, calls, usage=usage, provider_data=data)


def texts(parts: Sequence[Part]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Text))


def thoughts(parts: Sequence[Part]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Thought))


def calls(parts: Sequence[Part]) -> list[ToolCall]:
    return [part for part in parts if isinstance(part, ToolCall)]


def take_over(step: Step) -> Step:
    """Return the step as another worker reads it from the log."""
    stored = json.dumps(
        {
            "text": step.text,
            "calls": [[call.call_id, call.tool, call.args] for call in step.calls],
            "results": [[one.call_id, one.tool, one.value, one.is_error] for one in step.results],
            "data": step.provider_data and [step.provider_data.provider, step.provider_data.data],
        }
    )
    read: dict[str, Any] = json.loads(stored)
    return Step(
        read["text"],
        tuple(ToolCall(CallId(call_id), tool, args) for call_id, tool, args in read["calls"]),
        tuple(ToolResult(CallId(call_id), *rest) for call_id, *rest in read["results"]),
        provider_data=ProviderData(*read["data"]) if read["data"] else None,
    )


@dataclass
class Talk:
    """The loop in short: asks, answers calls with `results`, and keeps the turns of the session."""

    model: Model
    results: Callable[[ToolCall], Any] = lambda call: {"time": "12:00", "of": call.args}
    system: str = "You help with documents."
    turns: list[Turn] = field(default_factory=list[Turn])
    steps: list[Step] = field(default_factory=list[Step])
    parts: list[Part] = field(default_factory=list[Part])

    async def say(self, message: str, images: Sequence[Image] = (), max_steps: int = 10) -> str:
        """Send a message, run the tools that the model calls, and return the text of the last answer."""
        self.steps, self.parts = [], []
        for _ in range(max_steps):
            said = f"{message} {self.steps}"
            shown = tuple(image for image in images if image.artifact_id in said)
            conversation = Conversation(
                message, tuple(self.steps), self.system, turns=tuple(self.turns), images=shown
            )
            parts = await ask(self.model, conversation)
            self.parts += parts
            step = to_step(parts)
            results = tuple(self._answer(call) for call in step.calls)
            self.steps.append(take_over(replace(step, results=results)))
            if not step.calls:
                break
        self.turns.append(
            Turn(RunId(f"run_{len(self.turns)}"), message, tuple(self.steps), images=tuple(images))
        )
        return self.steps[-1].text

    def _answer(self, call: ToolCall) -> ToolResult:
        value = self.results(call)
        if isinstance(value, Exception):
            return ToolResult(call.call_id, call.tool, str(value), is_error=True)
        return ToolResult(call.call_id, call.tool, value)
