"""Names and schemas of tools as the providers take them."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel.llm.schemas import to_wire_name, to_wire_schema, tool_names
from tests.llm.talking import NODE_TOOL
from tests.llm.vendors import checks
from tests.llm.vendors.checks import check_tool

NAMES = st.from_regex(r"[a-zA-Z0-9][a-zA-Z0-9._:-]{0,127}", fullmatch=True)


@given(NAMES)
def test_every_name_fits_every_provider_and_is_stable(name: str):
    wire_name = to_wire_name(name)
    assert re.fullmatch(r"[a-zA-Z][a-zA-Z0-9_-]{0,63}", wire_name)
    assert to_wire_name(name) == wire_name
    assert tool_names([name]) == {wire_name: name}


@given(st.sets(NAMES, max_size=20))
def test_different_tools_have_different_names(names: set[str]):
    assert len(tool_names(names)) == len(names)


def test_name_that_fits_is_kept():
    assert to_wire_name("gsv__Canvas") == "gsv__Canvas"


@pytest.mark.parametrize(
    "schema",
    [
        NODE_TOOL.schema,
        {},
        {"type": "string"},
        {
            "anyOf": [
                {"properties": {"a": {"type": "string"}}},
                {"properties": {"b": {"type": ["string", "null"]}}},
            ]
        },
        {"allOf": [{"properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}, True]},
        {"properties": {"x-name": {"type": "array", "items": {"oneOf": [{"const": "a"}, {"type": "null"}]}}}},
        {"properties": {"a": True, "b": {"type": "object", "additionalProperties": {"type": "string"}}}},
        {"required": ["unknown"], "not": {"required": ["a"]}},
    ],
)
def test_schema_is_accepted_by_strict_checks(schema: dict[str, Any]):
    adapted = to_wire_schema(schema)
    check_tool("a", adapted, checks.NAME, checks.JSON_SCHEMA)
    for name in schema.get("properties", {}):
        assert name in adapted["properties"]


def test_top_level_alternatives_are_offered_together():
    either = {"anyOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}}]}
    assert to_wire_schema(either) == {"type": "object", "properties": {"a": {}, "b": {}}}
