"""Tools that Easel itself brings: harmless ones, so that a run has something to do."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from easel.core.tool.context import ToolContext
from easel.core.tool.definition import ToolDefinition
from easel.host.ports import Tool


@dataclass(frozen=True, slots=True)
class NativeTool:
    definition: ToolDefinition
    work: Callable[[Mapping[str, Any]], Awaitable[Any]]

    async def use(self, args: Mapping[str, Any], context: ToolContext) -> Any:  # noqa: ARG002 - these act in no run
        return await self.work(args)


def _object(properties: Mapping[str, Any], *required: str) -> Mapping[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


async def _echo(args: Mapping[str, Any]) -> Any:
    return args["value"]


async def _clock(_: Mapping[str, Any]) -> Any:
    return {"now": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")}


async def _sleep(args: Mapping[str, Any]) -> Any:
    await asyncio.sleep(args["ms"] / 1000)
    return {"slept_ms": args["ms"]}


def native_tools() -> list[Tool]:
    return [
        NativeTool(
            ToolDefinition("gsv__Echo", "Gives back the value it is given.", _object({"value": {}}, "value"), read_only=True), _echo
        ),
        NativeTool(ToolDefinition("gsv__Clock", "Tells the time of the server in UTC.", _object({}), read_only=True), _clock),
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
