"""Timeouts of actions: warnings about a `timeoutMs` that is longer than other limits of the tool call.

Owns the warnings for the author of a spec. Does not know how a timeout is enforced.
"""

from typing import Any, cast

from easel.core.action.policy import Definitions
from easel.core.canvas.actions import CallTool
from easel.core.canvas.spec import CanvasSpec
from easel.core.tool.definition import ToolDefinition


def timeout_warnings(spec: CanvasSpec, definitions: Definitions, tool_seconds: float) -> list[str]:
    """Return a warning for each `timeoutMs` above the server's limit or the tool's default timeout."""
    warnings: list[str] = []
    for action_id, action in spec.actions.items():
        if not isinstance(action, CallTool) or action.timeout_ms is None:
            continue
        own = None if "timeout" in action.args else _own_limit(definitions.get(action.tool))
        if action.timeout_ms > tool_seconds * 1000:
            warnings.append(
                f"actions.{action_id}.timeoutMs: {action.timeout_ms} is above this server's limit "
                f"for a tool call, {tool_seconds * 1000:g} ms (EASEL_TOOL_TIMEOUT_SECONDS)."
            )
        if own is not None and action.timeout_ms > own:
            warnings.append(
                f"actions.{action_id}.timeoutMs: {action.tool} stops after {own} ms by default, "
                "and the action then completes with partial output; pass its argument `timeout`."
            )
    return warnings


def _own_limit(definition: ToolDefinition | None) -> int | None:
    """Return the default of the tool's argument `timeout`, in milliseconds."""
    declared: Any = definition.schema if definition else {}
    for name in ("properties", "timeout"):
        declared = cast("dict[str, Any]", declared).get(name) if isinstance(declared, dict) else None
    default = cast("dict[str, Any]", declared).get("default") if isinstance(declared, dict) else None
    return default if isinstance(default, int) else None
