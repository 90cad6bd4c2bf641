"""The inputs of actions and the types of their fields. RS-66"""

from typing import Any

import pytest

from easel.core.action.input_fields import find_inputs
from easel.core.canvas.spec import parse_spec
from easel.core.tool.definition import ToolDefinition
from tests.core.canvas.specs import with_action
from tests.requirements import rule

SEARCH = ToolDefinition(
    "server-a__Read",
    "",
    {
        "properties": {
            "limit": {"type": "integer"},
            "ratio": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "all": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "either": {"type": ["string", "integer"]},
            "free": {},
        }
    },
)


def value(name: str) -> dict[str, str]:
    return {"$value": f"input.{name}"}


def inputs(definition: ToolDefinition | None = SEARCH, state: Any = None, **action: Any) -> dict[str, str]:
    spec = parse_spec(with_action(**action) | {"state": state or {}})
    return dict(find_inputs(spec.actions["act"], definition, spec.state))


@rule("RS-66")
def test_type_of_an_input_is_that_of_the_argument() -> None:
    args = {
        "limit": value("a"),
        "ratio": value("b"),
        "all": value("c"),
        "tags": [value("d")],
        "either": value("e"),
        "free": value("f"),
        "other": [
            "{{input.g}} {{input.deep.h}} {{state.i}}",
            {"$value": "input.deep.h"},
            {"$literal": value("j")},
        ],
    }
    call = {"kind": "tool.call", "tool": "server-a__Read", "args": args}
    types = {
        "a": "integer",
        "b": "number",
        "c": "boolean",
        "d": "string",
        "e": "json",
        "f": "string",
        "g": "string",
    }
    assert inputs(**call) == types
    assert inputs(None, **call) == dict.fromkeys(types, "string"), "the tool is not known"
    whole = {
        "kind": "tool.call",
        "tool": "server-a__Read",
        "args": {"tags": value("d"), "free": "{{input.d}}"},
    }
    assert inputs(**whole) == {"d": "json"}


@rule("RS-66")
@pytest.mark.parametrize(
    "state, expected",
    [
        ({"n": 5}, "number"),
        ({"n": True}, "boolean"),
        ({"n": "x"}, "string"),
        ({"n": [1]}, "json"),
        ({}, "string"),
    ],
)
def test_type_of_an_input_is_that_of_the_patched_value(state: dict[str, Any], expected: str) -> None:
    patch = [{"op": "add", "path": "/n", "value": value("x")}]
    assert inputs(None, state, kind="state.patch", patch=patch) == {"x": expected}


def test_message_takes_text() -> None:
    assert inputs(None, kind="session.send", message="{{input.a}} {{state.b}}") == {"a": "string"}
