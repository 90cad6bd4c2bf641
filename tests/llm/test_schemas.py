"""Names and schemas of tools as the providers take them."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel.llm.schemas import (
    GEMINI,
    JSON_SCHEMA,
    MAX_SCHEMA_PARTS,
    to_wire_name,
    to_wire_schema,
    tool_names,
)
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


@pytest.mark.parametrize("dialect", [JSON_SCHEMA, GEMINI])
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
def test_schema_is_accepted_by_strict_checks(schema: dict[str, Any], dialect: Any):
    keywords = checks.GEMINI_SCHEMA if dialect is GEMINI else checks.JSON_SCHEMA
    adapted = to_wire_schema(schema, dialect)
    check_tool("a", adapted, checks.NAME, keywords)
    for name in schema.get("properties", {}):
        assert name in adapted["properties"]


def test_constants_types_and_references_are_kept_in_other_words_for_gemini():
    properties = to_wire_schema(NODE_TOOL.schema, GEMINI)["properties"]
    assert properties["command"] == {"type": "string"}
    assert properties["level"] == {"description": "One of: 3"}
    assert properties["mode"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert properties["options"] == {"type": "object", "properties": {"again": {}}}


def test_top_level_alternatives_are_offered_together():
    either = {"anyOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}}]}
    assert to_wire_schema(either, JSON_SCHEMA) == {"type": "object", "properties": {"a": {}, "b": {}}}


def test_schema_that_expands_without_end_is_cut():
    definitions = {
        f"d{number}": {"properties": {name: {"$ref": f"#/$defs/d{number + 1}"} for name in "abcdefgh"}}
        for number in range(12)
    }
    schema = {"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": definitions}
    assert len(json.dumps(to_wire_schema(schema, GEMINI))) < 40 * MAX_SCHEMA_PARTS
