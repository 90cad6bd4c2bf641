"""Tools that Easel itself brings: harmless ones, so that a run has something to do."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from easel.core.tool.context import ToolContext
from easel.core.tool.definition import ToolDefinition
from easel.host.ports import Tool

Args = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NativeTool:
    """A tool of Easel's own: what it says of itself, and what it does for whom."""

    definition: ToolDefinition
    work: Callable[[Args, ToolContext], Awaitable[Any]]

    async def use(self, args: Args, context: ToolContext) -> Any:
        return await self.work(args, context)


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
                "Gives back the value it is given.",
                _object({"value": {}}, "value"),
                read_only=True,
            ),
            _echo,
        ),
        NativeTool(
            ToolDefinition("gsv__Clock", "Tells the time of the server in UTC.", _object({}), read_only=True),
            _clock,
        ),
        NativeTool(
            ToolDefinition(
                "gsv__Sleep",
                "Waits for some milliseconds.",
                _object({"ms": {"type": "integer", "minimum": 0, "maximum": 600_000}}, "ms"),
                read_only=True,
            ),
            _sleep,
        ),
    ]
