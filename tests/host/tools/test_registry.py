"""The tool registry: validation of arguments and its cost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.run.conversation import ToolCall
from easel.core.tool.context import ToolContext, UsedSecrets
from easel.core.tool.definition import ToolDefinition
from easel.core.values.references import SecretUse
from easel.errors import BadInput, ToolFailed
from easel.host.tools.registry import MAX_VALIDATION_COST, ToolRegistry
from easel.ids import AccountId, CallId
from tests.requirements import case, rule
from tests.support.principals import THE_OWNER

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

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


class OfferedTool:
    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.definition = ToolDefinition("node__Tool", "For a test.", schema)

    async def use(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        return len(args["list"])


def new_registry(harness: RunHarness, schema: Mapping[str, Any]) -> ToolRegistry:
    return ToolRegistry(
        [OfferedTool(schema)], audit=harness.audit, timeout_seconds=5, max_result_bytes=10_000
    )


@case("R7")
async def test_costly_validation_is_refused(harness: RunHarness) -> None:
    """Arguments and schema are each within limits; together they would block the event loop for seconds."""
    tools = new_registry(harness, COSTLY)
    assert await tools.call("node__Tool", {"list": [0] * 500}, CONTEXT) == 500
    with pytest.raises(
        BadInput, match="30002 values, which is too much to check against its schema of 7006 parts"
    ):
        await tools.call("node__Tool", {"list": [0] * 30_000}, CONTEXT)


async def test_long_list_is_validated_to_its_end(harness: RunHarness) -> None:
    tools = new_registry(harness, PLAIN)
    items = [0] * 20_000
    assert await tools.call("node__Tool", {"list": items}, CONTEXT) == len(items)
    with pytest.raises(BadInput, match="list/20000: the value is less than the minimum"):
        await tools.call("node__Tool", {"list": [*items, -1]}, CONTEXT)
    with pytest.raises(BadInput, match="too much to check"):
        await tools.call("node__Tool", {"list": [0] * (MAX_VALIDATION_COST // 5)}, CONTEXT)


@pytest.mark.parametrize("args", ['{"list": [1', "", [1], None])
async def test_arguments_that_are_no_object_are_an_error_for_the_model(
    harness: RunHarness, args: Any
) -> None:
    """A model wrote broken JSON: the tool is not called, also if its schema allows anything."""
    result = await new_registry(harness, {}).use(ToolCall(CallId("c1"), "node__Tool", args), CONTEXT)
    assert result.is_error
    assert result.call_id == "c1"
    assert "node__Tool: the arguments must be a complete JSON object" in result.value


class OneSecret:
    """A source with one secret, whose name is longer than its value."""

    async def resolve(self, account_id: AccountId, names: Collection[str]) -> Mapping[str, str]:
        return dict.fromkeys(names, "value1")

    async def find_missing(self, account_id: AccountId, names: Collection[str]) -> list[str]:
        return []


class Repeater(OfferedTool):
    async def use(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        return args["text"] * args["count"]


@rule("RS-66")
async def test_result_with_names_in_place_of_secrets_keeps_the_limit(harness: RunHarness) -> None:
    name = "N" * 64
    tools = ToolRegistry(
        [Repeater({})], audit=harness.audit, timeout_seconds=5, max_result_bytes=10_000, secrets=OneSecret()
    )
    context = replace(CONTEXT, secrets=UsedSecrets((SecretUse(("text",), name),)))
    assert await tools.call("node__Tool", {"text": name, "count": 2}, context) == f"[secret {name}]" * 2
    with pytest.raises(ToolFailed, match="over the limit of 10000"):
        await tools.call("node__Tool", {"text": name, "count": 1_000}, context)
