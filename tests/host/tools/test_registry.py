"""The one way to a tool: what it costs to look whether a call fits is in bounds, whoever wrote the schema and whoever the arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from easel.core.principal import THE_OWNER
from easel.core.tool.context import ToolContext
from easel.core.tool.definition import ToolDefinition
from easel.errors import ToolFailed
from easel.host.tools.registry import MAX_VALIDATION_COST, ToolRegistry
from tests.requirements import case

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.host.conftest import RunHarness

CONTEXT = ToolContext(THE_OWNER, "agent:main:main")
COSTLY = {
    "type": "object",
    "properties": {"list": {"type": "array", "items": {"allOf": [{"multipleOf": 1}] * 3_500}}},
}
PLAIN = {
    "type": "object",
    "properties": {"list": {"type": "array", "items": {"type": "integer", "minimum": 0}}},
}


class Offered:
    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.definition = ToolDefinition("node__Tool", "For a test.", schema)

    async def use(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        return len(args["list"])


def box(harness: RunHarness, schema: Mapping[str, Any]) -> ToolRegistry:
    return ToolRegistry([Offered(schema)], audit=harness.audit, timeout_seconds=5, max_result_bytes=10_000)


@case("R7")
async def test_arguments_with_many_values_are_not_held_against_a_schema_with_many_parts(harness: RunHarness) -> None:
    """Each of them is in bounds; together they would keep everybody else waiting for seconds."""
    tools = box(harness, COSTLY)
    assert await tools.call("node__Tool", {"list": [0] * 500}, CONTEXT) == 500
    with pytest.raises(
        ToolFailed, match="30002 values, which is too much to check against its schema of 7006 parts"
    ):
        await tools.call("node__Tool", {"list": [0] * 30_000}, CONTEXT)


async def test_a_long_list_against_a_plain_schema_is_checked_to_its_end(harness: RunHarness) -> None:
    tools = box(harness, PLAIN)
    long = [0] * 200_000
    assert await tools.call("node__Tool", {"list": long}, CONTEXT) == len(long)
    with pytest.raises(ToolFailed, match="list/200000: -1 is less than the minimum"):
        await tools.call("node__Tool", {"list": [*long, -1]}, CONTEXT)
    with pytest.raises(ToolFailed, match="too much to check"):
        await tools.call("node__Tool", {"list": [0] * (MAX_VALIDATION_COST // 5)}, CONTEXT)
