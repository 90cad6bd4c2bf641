"""A tool whose output and end are controlled by the test."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from easel.core.tool.definition import ToolDefinition
from easel.errors import ToolFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from easel.core.tool.context import ToolContext

NAME = "test__Talk"
SPEC: dict[str, Any] = {
    "toolPolicy": {"allow": [NAME]},
    "actions": {
        "go": {"kind": "tool.call", "tool": NAME, "saveAs": "result", "confirm": "never"},
        "ask": {"kind": "tool.call", "tool": NAME, "confirm": "always"},
    },
}


class ControlledTool:
    definition = ToolDefinition(NAME, "For a test.", {"type": "object"})

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self._ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.outcomes: list[str] = []
        self._context: ToolContext | None = None

    async def use(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        self._context = context
        self.started.set()
        try:
            result = await asyncio.shield(self._ended)
        except asyncio.CancelledError:
            self.outcomes.append("cancelled")
            raise
        self.outcomes.append("returned")
        return result

    @property
    def streams_output(self) -> bool:
        return self._context is not None and (self._context.on_output, self._context.watched) != (None, None)

    def emit(self, text: str) -> None:
        assert self._context is not None
        assert self._context.on_output is not None
        self._context.on_output(text)

    def finish(self, result: Any = "done") -> None:
        self._ended.set_result(result)

    def fail(self, reason: str) -> None:
        self._ended.set_exception(ToolFailed(tool=NAME, reason=reason))
