"""The internal form of what a model says and gets, the same for every provider. CT-39

Owns the members of an internal event. Nothing in it depends on a provider: the provider's own form of an
answer stays in `ProviderData`, which only its adapter reads.
"""

from dataclasses import dataclass
from typing import Any, cast

from easel.core.run.conversation import Step, ToolCall, ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
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
        members = {
            "role": self.role,
            "type": self.type,
            "content": self.content,
            "tool_name": self.tool_name,
            "tool_result": self.tool_result,
            "revision_id": self.revision_id,
            "lease_id": self.lease_id,
        }
        return {name: value for name, value in members.items() if value is not None}


def step_events(step: Step) -> list[InternalEvent]:
    """Return the events of a step in order: its text, its calls, and the results of the calls."""
    said = [InternalEvent(role="assistant", type="text", content=step.text)] if step.text else []
    return [*said, *map(_call_event, step.calls), *map(_result_event, step.results)]


def _call_event(call: ToolCall) -> InternalEvent:
    return InternalEvent(
        role="assistant",
        type="tool_call",
        content=call.args,
        tool_name=call.tool,
        lease_id=_text_member(call.args, "lease_id"),
    )


def _result_event(result: ToolResult) -> InternalEvent:
    value = result.value
    revision_id = _text_member(value, "new_revision_id") or _text_member(value, "revision_id")
    return InternalEvent(
        role="tool",
        type="tool_error" if result.is_error else "tool_result",
        content="",
        tool_name=result.tool,
        tool_result=result.value,
        revision_id=revision_id,
        lease_id=_text_member(value, "lease_id"),
    )


def _text_member(value: Any, name: str) -> str | None:
    member = cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
    return member if isinstance(member, str) else None
