"""The type of a tool that is implemented in Easel, and three simple ones for demos: echo, clock and sleep."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from easel.core.tool.context import ToolContext
from easel.core.tool.definition import ToolDefinition, object_schema
from easel.errors import BadInput
from easel.host.ports import Tool

Args = Mapping[str, Any]
Run = Callable[[Args, ToolContext], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class NativeTool:
    """A tool that is implemented in Easel: its definition and the function that runs it.

    `refuse`, if there is one, returns the result of a call whose arguments do not fit the schema.
    """

    definition: ToolDefinition
    run: Run
    refuse: Callable[[BadInput, Args, ToolContext], Awaitable[Any]] | None = None

    async def use(self, args: Args, context: ToolContext) -> Any:
        return await self.run(args, context)


async def _echo(args: Args, _: ToolContext) -> Any:
    return args["value"]


async def _clock(_: Args, __: ToolContext) -> Any:
    return {"now": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")}


async def _sleep(args: Args, _: ToolContext) -> Any:
    await asyncio.sleep(args["ms"] / 1000)
    return {"slept_ms": args["ms"]}


_MILLISECONDS = {"type": "integer", "minimum": 0, "maximum": 600_000}
_TOOLS: Sequence[tuple[str, str, Mapping[str, Any], Run]] = (
    ("gsv__Echo", "Return the given value.", {"value": {}}, _echo),
    ("gsv__Clock", "Return the time of the server in UTC.", {}, _clock),
    ("gsv__Sleep", "Wait for some milliseconds.", {"ms": _MILLISECONDS}, _sleep),
)


def native_tools() -> list[Tool]:
    return [
        NativeTool(
            ToolDefinition(name, description, object_schema(arguments, *arguments), read_only=True), run
        )
        for name, description, arguments, run in _TOOLS
    ]
