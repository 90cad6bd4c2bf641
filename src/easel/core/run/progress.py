"""The progress of a run, read from its log by the worker that continues the run. RX-30, RS-38"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from easel.core.run.conversation import (
    STEP_BREAK,
    ContextStart,
    ProviderData,
    Step,
    ToolCall,
    ToolResult,
    Usage,
    assistant_text,
)
from easel.core.run.instructions import Instructions
from easel.ids import CallId

OUTCOME_UNKNOWN = (
    "The worker that made this call was lost before its result was recorded. It may or may not have taken "
    "effect, and it was not made again. Check what happened before you repeat it."
)


@dataclass(frozen=True, slots=True)
class Progress:
    """The steps of earlier attempts in order, and the tool calls that were started.

    `unfinished` is the text of a model call that did not finish. A worker that continues the run ignores it,
    because it calls the model again; it is part of the text of a run that ends instead. `updates` are the
    hidden canvas updates that an earlier attempt wrote before its first step.
    """

    steps: tuple[Step, ...] = ()
    started_calls: frozenset[CallId] = frozenset()
    unfinished: str = ""
    updates: tuple[str, ...] = ()
    start: ContextStart | None = None  # None: no step of an earlier attempt has one
    instructions: Instructions | None = None  # likewise

    @property
    def text(self) -> str:
        """The assistant's text so far, for a run that is not continued."""
        return assistant_text((*self.steps, Step(self.unfinished, ())))


def to_progress(events: Iterable[tuple[str, Mapping[str, Any]]]) -> Progress:
    """Return the progress according to the events of a run's log. RX-06

    Text that was not restored from its artifact is left out.
    """
    steps: list[Step] = []
    started_calls: set[CallId] = set()
    unfinished: list[str] = []
    updates: list[str] = []
    start: ContextStart | None = None
    instructions: Instructions | None = None
    last_try = 1
    is_new_attempt = False  # the first delta of an attempt replaces the unfinished text of the former one
    for event_type, data in events:
        if event_type == "run.start":
            is_new_attempt = True
        elif event_type == "message.delta" and data.get("role") != "user":
            if is_new_attempt or data.get("try", 1) > last_try:
                unfinished.clear()
                is_new_attempt = False
            last_try = data.get("try", 1)
            unfinished.append(_text(data))
        elif event_type == "step.completed":
            unfinished.clear()
            steps.append(to_step(data))
            if "context" in data:
                start = ContextStart.from_json(data["context"])
            if isinstance(stored := data.get("instructions"), str):
                instructions = Instructions.from_text(stored)
        elif event_type == "message.completed" and data.get("hidden") and not steps:
            updates.append(_text(data))
        elif event_type == "tool.call":
            started_calls.add(CallId(data["call_id"]))
        elif event_type == "tool.result":
            steps[-1] = replace(steps[-1], results=(*steps[-1].results, to_result(data)))
    finished = tuple(steps)
    lead = STEP_BREAK if assistant_text(finished) else ""
    text = "".join(unfinished).removeprefix(lead)
    return Progress(finished, frozenset(started_calls), text, tuple(updates), start, instructions)


def to_step(data: Mapping[str, Any]) -> Step:
    """Return the step of a `step.completed` event, without results."""
    calls = tuple(ToolCall(CallId(call["call_id"]), call["tool"], call["args"]) for call in data["calls"])
    usage, provider = data.get("usage"), data.get("provider")
    return Step(
        _text(data),
        calls,
        usage=Usage.from_json(usage) if usage else None,
        provider_data=ProviderData(provider["name"], provider["data"]) if provider else None,
        prefix=data.get("prefix", ""),
    )


def to_result(data: Mapping[str, Any]) -> ToolResult:
    """Return the result of a `tool.result` event."""
    value = data.get("error", data.get("result"))
    return ToolResult(CallId(data["call_id"]), data["tool"], value, "error" in data)


def _text(data: Mapping[str, Any]) -> str:
    return data["text"] if isinstance(data["text"], str) else ""
