"""The progress of a run, read from its log by the worker that continues the run. RX-30, RS-38"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from easel.core.run.conversation import Step, ToolCall, ToolResult
from easel.ids import CallId

OUTCOME_UNKNOWN = (
    "The worker that made this call was lost before its result was recorded. It may or may not have taken "
    "effect, and it was not made again. Check what happened before you repeat it."
)


@dataclass(frozen=True, slots=True)
class Progress:
    """The steps of earlier attempts in order, and the tool calls that were started."""

    steps: tuple[Step, ...] = ()
    started_calls: frozenset[CallId] = frozenset()


def to_progress(events: Iterable[tuple[str, Mapping[str, Any]]]) -> Progress:
    """Return the progress according to the events of a run's log. RX-06

    Deltas of an unfinished answer of the model are ignored, because the model is called again.
    """
    steps: list[Step] = []
    started_calls: set[CallId] = set()
    for event_type, data in events:
        if event_type == "step.completed":
            calls = tuple(
                ToolCall(CallId(call["call_id"]), call["tool"], call["args"]) for call in data["calls"]
            )
            steps.append(Step(data["text"], calls))
        elif event_type == "tool.call":
            started_calls.add(CallId(data["call_id"]))
        elif event_type == "tool.result":
            result = ToolResult(
                CallId(data["call_id"]), data["tool"], data.get("error", data.get("result")), "error" in data
            )
            steps[-1] = replace(steps[-1], results=(*steps[-1].results, result))
    return Progress(tuple(steps), frozenset(started_calls))
