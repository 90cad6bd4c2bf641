"""The type of a tool that is implemented in Easel, and three simple ones for demos: echo, clock and sleep."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from easel.core.tool.context import ToolContext
from easel.core.tool.definition import ToolDefinition
from easel.errors import BadInput
from easel.host.ports import Tool

Args = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NativeTool:
    """A tool that is implemented in Easel: its definition and the function that runs it.

    `refuse`, if there is one, returns the result of a call whose arguments do not fit the schema.
    """

    definition: ToolDefinition
    run: Callable[[Args, ToolContext], Awaitable[Any]]
    refuse: Callable[[BadInput, Args, ToolContext], Awaitable[Any]] | None = None

    async def use(self, args: Args, context: ToolContext) -> Any:
        return await self.run(args, context)


def _object(properties: Mapping[str, Any], *required: str) -> Mapping[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


async def _echo(args: Args, _: ToolContext) -> Any:
    return args["value"]


async def _clock(_: Args, __: ToolContext) -> Any:
    return {"now": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")}


async def _sleep(args: Args, _: ToolContext) -> Any:
    await asyncio.sleep(args["ms"] / 1000)
    return {"slept_ms": args["ms"]}


def native_tools() -> list[Tool]:
    return [
        NativeTool(
            ToolDefinition(
                "gsv__Echo",
                "Return the given value.",
                _object({"value": {}}, "value"),
                read_only=True,
            ),
            _echo,
        ),
        NativeTool(
            ToolDefinition(
                "gsv__Clock", "Return the time of the server in UTC.", _object({}), read_only=True
            ),
            _clock,
        ),
        NativeTool(
            ToolDefinition(
                "gsv__Sleep",
                "Wait for some milliseconds.",
                _object({"ms": {"type": "integer", "minimum": 0, "maximum": 600_000}}, "ms"),
                read_only=True,
            ),
            _sleep,
        ),
    ]
