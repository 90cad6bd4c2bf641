"""The internal form of what a model says and gets, the same for every provider. CT-39

Owns the members of an internal event. Nothing in it depends on a provider: the provider's own form of an
answer stays in `ProviderData`, which only its adapter reads.
"""

from dataclasses import dataclass, fields
from typing import Any, cast

from easel.core.run.conversation import Step, ToolResult


@dataclass(frozen=True, slots=True)
class InternalEvent:
    role: str  # user, assistant or tool
    type: str  # text, tool_call, tool_result or tool_error
    content: Any
    tool_name: str | None = None
    tool_result: Any = None
    revision_id: str | None = None
    lease_id: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the members that are set."""
        members = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: value for name, value in members if value is not None}


def step_events(step: Step) -> list[InternalEvent]:
    """Return the events of a step in order: its text, its calls, and the results of the calls."""
    said = [InternalEvent("assistant", "text", step.text)] if step.text else []
    calls = [
        InternalEvent(
            "assistant", "tool_call", call.args, call.tool, lease_id=_text_member(call.args, "lease_id")
        )
        for call in step.calls
    ]
    return [*said, *calls, *map(_result_event, step.results)]


def _result_event(result: ToolResult) -> InternalEvent:
    return InternalEvent(
        "tool",
        "tool_error" if result.is_error else "tool_result",
        "",
        result.tool,
        result.value,
        _text_member(result.value, "new_revision_id") or _text_member(result.value, "revision_id"),
        _text_member(result.value, "lease_id"),
    )


def _text_member(value: Any, name: str) -> str | None:
    member = cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
    return member if isinstance(member, str) else None
