"""How long an action may take, and what ends its tool before that: told to the author of a spec when it is stored."""

from typing import Any, cast

from easel.core.action.policy import Definitions
from easel.core.canvas.actions import CallTool
from easel.core.canvas.spec import CanvasSpec
from easel.core.tool.definition import ToolDefinition


def time_warnings(spec: CanvasSpec, definitions: Definitions, tool_seconds: float) -> list[str]:
    """Where `timeoutMs` promises more than the tool is given: by this server, or by itself where no argument says otherwise."""
    found: list[str] = []
    for action_id, action in spec.actions.items():
        if not isinstance(action, CallTool) or action.timeout_ms is None:
            continue
        own = None if "timeout" in action.args else _own_limit(definitions.get(action.tool))
        if action.timeout_ms > tool_seconds * 1000:
            found.append(
                f"actions.{action_id}.timeoutMs: {action.timeout_ms} is more than any call of a tool may take here: "
                f"{tool_seconds * 1000:g} ms (EASEL_TOOL_TIMEOUT_SECONDS)."
            )
        if own is not None and action.timeout_ms > own:
            found.append(
                f"actions.{action_id}.timeoutMs: {action.tool} stops by itself after {own} ms, and then the action completes with what "
                "there is; give it its argument `timeout`."
            )
    return found


def _own_limit(definition: ToolDefinition | None) -> int | None:
    """In milliseconds, where a tool says so: the default of its argument `timeout`."""
    declared: Any = definition.schema if definition else {}
    for name in ("properties", "timeout"):
        declared = cast("dict[str, Any]", declared).get(name) if isinstance(declared, dict) else None
    default = cast("dict[str, Any]", declared).get("default") if isinstance(declared, dict) else None
    return default if isinstance(default, int) else None
