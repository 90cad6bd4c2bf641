"""Commands of a node of GSV that go on after the answer.

Its Bash answers `{"status": "running", "sessionId": …}` after `yieldMs` and lets the command go on. Owns how
such an answer is recognised. Does not know nodes. RS-67
"""

from collections.abc import Mapping
from typing import Any, cast

from easel.core.tool.node import RESERVED, split_tool_name
from easel.errors import ToolFailed

MAX_SHOWN_LENGTH = 100  # characters of the id of a command


def check_has_ended(tool: str, result: Any) -> None:
    """Raise `ToolFailed` if the result says that the command still runs: an action must not count as done."""
    node_id, name = split_tool_name(tool)
    if name != "Bash" or node_id in RESERVED or not isinstance(result, Mapping):
        return
    answer = cast("Mapping[str, Any]", result)
    session_id = answer.get("sessionId")
    if answer.get("status") != "running" or not isinstance(session_id, str):
        return
    shown = "".join(char for char in session_id if char.isprintable())[:MAX_SHOWN_LENGTH]
    raise ToolFailed(
        tool=tool,
        reason=f"the command still runs on the node as {shown}, so its outcome is not known. Follow it with "
        f"{node_id}__Process, or give the call a longer `yieldMs`.",
    )
