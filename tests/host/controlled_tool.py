"""A tool that says what a test tells it to, and ends when the test says so."""

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
        "go": {"kind": "tool.call", "tool": NAME, "saveAs": "said", "confirm": "never"},
        "ask": {"kind": "tool.call", "tool": NAME, "confirm": "always"},
    },
}


class ControlledTool:
    definition = ToolDefinition(NAME, "For a test.", {"type": "object"})

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.outcomes: list[str] = []
        self._context: ToolContext | None = None

    async def use(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        self._context = context
        self.begun.set()
        try:
            result = await asyncio.shield(self.ended)
        except asyncio.CancelledError:
            self.outcomes.append("cancelled")
            raise
        self.outcomes.append("returned")
        return result

    @property
    def is_heard(self) -> bool:
        return self._context is not None and (self._context.on_output, self._context.watched) != (None, None)

    def say(self, text: str) -> None:
        assert self._context is not None
        assert self._context.on_output is not None
        self._context.on_output(text)

    def end(self, result: Any = "done") -> None:
        self.ended.set_result(result)

    def fail(self, reason: str) -> None:
        self.ended.set_exception(ToolFailed(tool=NAME, reason=reason))
