"""Warnings about arguments of a spec that do not fit the schema of their tool. RS-66"""

from typing import Any

import pytest
from hypothesis import given

from easel.core.action.argument_warnings import MAX_WARNINGS, find_argument_warnings
from easel.core.canvas.spec import parse_spec
from easel.core.tool.definition import ToolDefinition
from easel.host.tools.schema import build_validator, find_errors
from tests.core.canvas.specs import with_action
from tests.core.values.test_references import some_json
from tests.requirements import rule

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "limit": {"type": "integer", "minimum": 1},
        "query": {"type": "string", "minLength": 3},
        "sort": {"enum": ["name", "date"]},
        "filter": {"type": "object", "properties": {"tags": {"type": "array", "maxItems": 2}}},
        "either": {"anyOf": [{"type": "integer"}, {"const": "all"}]},
        "free": {"type": "object"},
    },
    "required": ["query"],
    "additionalProperties": False,
    "if": {"properties": {"sort": {"const": "date"}}, "required": ["sort"]},
    "then": {"required": ["limit"]},
}


def warnings(args: Any, state: Any = None, schema: Any = SCHEMA) -> list[str]:
    raw = with_action(kind="tool.call", tool="server-a__Search", args=args) | {"state": state or {}}
    raw["toolPolicy"] = {**raw["toolPolicy"], "secrets": ["TOKEN"]}
    definition = ToolDefinition("server-a__Search", "", schema)
    validator = build_validator(schema)
    found = find_argument_warnings(
        parse_spec(raw), {"server-a__Search": definition}, lambda _, sample: find_errors(validator, sample)
    )
    return [warning.removeprefix("actions.act.args") for warning in found]


FITTING = [
    {"query": "abc", "limit": 5, "sort": "date", "filter": {"tags": ["a"]}, "either": "all"},
    {"query": "{{state.q}}", "limit": {"$value": "state.n"}, "sort": "{{input.sort}}"},
    {"query": {"$secret": "TOKEN"}, "either": {"$value": "input.x"}, "filter": {"$value": "state.f"}},
    {"query": "abc", "filter": {"tags": [{"$value": "state.a"}, "b"]}, "free": {"any": "thing"}},
    {"query": {"$literal": "{{abc}}"}, "limit": {"$value": "state.zero"}},
]


@rule("RS-66")
@pytest.mark.parametrize("args", FITTING)
def test_arguments_that_can_fit_give_no_warning(args: dict[str, Any]) -> None:
    assert warnings(args, {"zero": 0, "f": None}) == []


NOT_FITTING = [
    # arguments, the beginning of the only warning
    ({}, ".query: is required by server-a__Search."),
    ({"query": "ab"}, ".query: server-a__Search refuses it: "),
    ({"query": "abc", "limit": "5"}, ".limit: server-a__Search refuses it: the value is not of type"),
    ({"query": "abc", "limit": {"$literal": 0}}, ".limit: server-a__Search refuses it: "),
    (
        {"query": "abc", "limit": "{{state.n}}"},
        ".limit: {{state.n}} gives text, which server-a__Search refuses; use "
        '{"$value": "state.n"} for the value.',
    ),
    ({"query": "abc", "limit": "{{state.n}}0"}, ".limit: gives text, which server-a__Search refuses"),
    (
        {"query": "abc", "limit": {"$value": "state.text"}},
        '.limit: {"$value": "state.text"} has another type in the spec\'s state',
    ),
    ({"query": "abc", "limt": 5}, ".limt: server-a__Search has no such argument; did you mean `limit`?"),
    ({"query": "abc", "filter": {"tag": []}}, ".filter.tag: server-a__Search has no such argument; did you"),
    (
        {"query": "abc", "filter": {"tags": ["{{state.a}}", "b", "c"]}},
        ".filter.tags: server-a__Search refuses it: ",
    ),
    ({"query": "abc", "sort": "size"}, ".sort: server-a__Search refuses it: "),
    ({"query": "abc", "sort": "date"}, ".limit: is required by server-a__Search."),
]


@rule("RS-66")
@pytest.mark.parametrize("args, beginning", NOT_FITTING, ids=[str(row[0]) for row in NOT_FITTING])
def test_argument_that_cannot_fit_is_named(args: dict[str, Any], beginning: str) -> None:
    (warning,) = warnings(args, {"n": 5, "text": "x"})
    assert warning.startswith(beginning)


@rule("RS-66")
def test_misspelt_name_is_found_without_additional_properties() -> None:
    lenient = {"properties": {"limit": {}}, "type": "object"}
    assert "did you mean `limit`?" in warnings({"limti": 5}, schema=lenient)[0]
    assert warnings({"limti": 5}, schema={**lenient, "additionalProperties": True}) == []
    assert warnings({"anything": 5}, schema={"type": "object"}) == []


@rule("RS-66")
def test_number_of_warnings_is_limited() -> None:
    found = warnings({"query": "abc", **{f"x{number}": 1 for number in range(50)}})
    assert len(found) == MAX_WARNINGS + 1


@rule("RS-66")
@given(some_json)
def test_value_by_reference_never_gives_a_warning_if_its_type_is_unknown(value: Any) -> None:
    assert (
        warnings({"query": "abc", "limit": {"$value": "input.x"}, "free": {"$literal": {"a": value}}}) == []
    )
