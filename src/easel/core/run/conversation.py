"""The conversation between a user and a model in one run. Does not know the formats of model providers."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from easel.core.stream.message_text import take_out_runs
from easel.ids import CallId


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    call_id: CallId
    tool: str
    args: Any


Part = Text | Thought | ToolCall


@dataclass(frozen=True, slots=True)
class ToolResult:
    call_id: CallId
    tool: str
    value: Any
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One answer of the model: its text, its tool calls, and the results of these calls."""

    text: str
    calls: tuple[ToolCall, ...]
    results: tuple[ToolResult, ...] = ()

    @property
    def is_finished(self) -> bool:
        return len(self.results) == len(self.calls)


@dataclass(frozen=True, slots=True)
class Conversation:
    user_message: str
    steps: tuple[Step, ...] = field(default=())

    @property
    def results(self) -> list[ToolResult]:
        return [result for step in self.steps for result in step.results]


def to_conversation(user_message: str, steps: Sequence[Step]) -> Conversation:
    """Return the conversation as a model gets it: texts with references in place of encoded runs. RS-62"""
    return Conversation(
        user_message, tuple(replace(step, text=take_out_runs(step.text).text) for step in steps)
    )


STEP_BREAK = "\n\n"  # between the texts of two steps


def assistant_text(steps: tuple[Step, ...]) -> str:
    """Return the assistant's message: the texts of all steps. Equal to the text of all deltas."""
    return STEP_BREAK.join(step.text for step in steps if step.text)
