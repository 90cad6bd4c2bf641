"""Going on where a lost worker stopped: the finished steps, read back from the run's own log. RX-30, RS-38"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from easel.core.run.conversation import Step, ToolCall, ToolResult
from easel.ids import CallId

OUTCOME_UNKNOWN = (
    "The worker that made this call was lost before its result was recorded. It may or may not have taken effect, "
    "and it was not made again. Check what happened before you repeat it."
)


@dataclass(frozen=True, slots=True)
class Progress:
    """What earlier attempts left: steps in order, and the calls that had begun when they stopped."""

    steps: tuple[Step, ...] = ()
    begun: frozenset[CallId] = frozenset()


def progress(events: Iterable[tuple[str, Mapping[str, Any]]]) -> Progress:
    """Deltas of a model call that was cut off count for nothing: that call is asked again. RX-06"""
    steps: list[Step] = []
    begun: set[CallId] = set()
    for event_type, data in events:
        if event_type == "step.completed":
            calls = tuple(
                ToolCall(CallId(call["call_id"]), call["tool"], call["args"]) for call in data["calls"]
            )
            steps.append(Step(data["text"], calls))
        elif event_type == "tool.call":
            begun.add(CallId(data["call_id"]))
        elif event_type == "tool.result":
            result = ToolResult(
                CallId(data["call_id"]), data["tool"], data.get("error", data.get("result")), "error" in data
            )
            steps[-1] = replace(steps[-1], results=(*steps[-1].results, result))
    return Progress(tuple(steps), frozenset(begun))
