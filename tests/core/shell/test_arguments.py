"""The arguments of a tool that a shell reads, by the mark in the schema and by their names."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel.core.shell.arguments import find_shell_texts, is_shell, may_contain_shell
from easel.core.tool.definition import ToolDefinition
from easel.core.values.template import leaves
from tests.core.stream.costs import least_seconds
from tests.requirements import rule


def tool(schema: dict[str, Any], name: str = "laptop__Deploy") -> ToolDefinition:
    return ToolDefinition(name, "", schema)


def with_arguments(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


TEXT = {"type": "string"}
SHELL = {"type": "string", "x-shell": True}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "command": SHELL,
        "workdir": {"type": "string"},
        "not_quite": {"x-shell": "true"},
        "steps": {
            "type": "array",
            "items": {"type": "object", "properties": {"run": SHELL, "name": {"type": "string"}}},
        },
        "both": {"type": "array", "prefixItems": [SHELL, {"type": "string"}]},
        "either": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/command~1line"}]},
        "all_of_it": {"type": "object", "x-shell": True},
        "matched": {"patternProperties": {"^run_": SHELL}},
        "others": {"additionalProperties": SHELL},
        "loop": {"$ref": "#/$defs/loop"},
        "odd": {"anyOf": 7, "properties": [], "items": "x", "$ref": "#/nowhere/at/all"},
    },
    "$defs": {
        "command/line": {"allOf": [SHELL]},
        "loop": {"anyOf": [{"$ref": "#/$defs/loop"}, {"$ref": "#"}]},
    },
}
ARGUMENTS = [
    (("command",), True),
    (("workdir",), False),
    (("not_quite",), False),
    (("matched", "run_it"), True),
    (("matched", "else"), True),  # patterns are not evaluated
    (("others", "any"), True),
    (("odd", "x", 1), False),
    (("steps", 0, "run"), True),
    (("steps", 3, "name"), False),
    (("both", 0), True),
    (("both", 1), False),
    (("either",), True),
    (("all_of_it", "deep", 3), True),
    (("loop", "command"), True),
    (("steps",), False),
    ((), False),
]


@rule("RS-44", "RS-16")
@pytest.mark.parametrize("path, expected", ARGUMENTS)
def test_argument_marked_in_the_schema_is_a_command(path: tuple[str | int, ...], expected: bool) -> None:
    assert is_shell(tool(SCHEMA), path) is expected


UNMARKED = with_arguments(command=TEXT, workdir=TEXT, not_quite={"x-shell": "true"})


@rule("RS-65")
@pytest.mark.parametrize("name", ["command", "cmd", "script", "shell"])
def test_argument_with_the_name_of_a_command_is_one_without_the_mark(name: str) -> None:
    assert is_shell(tool(with_arguments(**{name: TEXT})), (name,))
    assert is_shell(tool({}), (name,))
    assert is_shell(tool(with_arguments(steps={"type": "array"})), ("steps", 0, name))
    assert not is_shell(tool(with_arguments(**{name: {"type": "string", "x-shell": False}})), (name,))


@rule("RS-44", "RS-65")
def test_other_argument_without_the_mark_is_not_a_command() -> None:
    assert not is_shell(tool(UNMARKED), ("workdir",))
    assert not is_shell(tool(UNMARKED), ("not_quite",))
    assert not is_shell(tool(UNMARKED), ("unknown", 1, "x"))
    assert not is_shell(tool({}), ("path",))
    assert not is_shell(tool({}), ())


@rule("RS-65")
@pytest.mark.parametrize("name", ["laptop__Bash", "laptop__SHELL", "a__sh", "a__Exec", "bash"])
def test_every_text_of_a_tool_named_like_a_shell_is_a_command(name: str) -> None:
    assert is_shell(tool(with_arguments(line=TEXT), name), ("line",))
    assert is_shell(tool({}, name), ("line",))
    assert not is_shell(tool(with_arguments(line={"type": "string", "x-shell": False}), name), ("line",))


@rule("RS-65")
def test_shell_tool_that_declares_its_command_reads_no_other_argument() -> None:
    assert not is_shell(tool(UNMARKED, "laptop__Bash"), ("workdir",))
    assert not is_shell(tool(with_arguments(line=SHELL, workdir=TEXT), "laptop__Bash"), ("workdir",))
    assert is_shell(tool(UNMARKED, "laptop__Bash"), ("command",))


CONTAINERS = [
    (("command",), True),
    (("steps",), True),
    (("steps", 0), True),
    (("steps", 0, "name"), False),
    (("both",), True),
    (("both", 1), False),
    (("either",), True),
    (("matched",), True),
    (("others",), True),
    (("loop",), True),
    (("workdir",), False),
    (("unknown",), False),
    ((), True),
]


@rule("RS-66", "RS-44")
@pytest.mark.parametrize("path, expected", CONTAINERS)
def test_argument_that_contains_a_command_is_found(path: tuple[str | int, ...], expected: bool) -> None:
    assert may_contain_shell(tool(SCHEMA), path) is expected


@rule("RS-66", "RS-65")
def test_argument_that_contains_an_unmarked_command_is_found() -> None:
    step = {"type": "object", "properties": {"script": TEXT}}
    assert may_contain_shell(tool(with_arguments(steps={"items": step})), ("steps",))
    assert may_contain_shell(tool(with_arguments(steps={"items": [step]})), ("steps",))
    assert may_contain_shell(tool(with_arguments(steps={"contains": step})), ("steps",))
    data = {"type": "object", "properties": {"script": {"type": "string", "x-shell": False}}}
    assert not may_contain_shell(tool(with_arguments(steps={"items": data})), ("steps",))
    assert not may_contain_shell(tool(with_arguments(steps={"x-shell": False, "items": step})), ("steps",))
    assert may_contain_shell(tool(with_arguments(line=TEXT), "a__sh"), ("line",))


@rule("RS-44", "RS-65", "RS-66")
@given(
    st.recursive(
        st.just("text") | st.integers(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from([*SCHEMA["properties"], "run", "name", "cmd"]), inner)
        ),
        max_leaves=12,
    ),
    st.sampled_from(["laptop__Deploy", "laptop__sh"]),
    st.sampled_from([SCHEMA, UNMARKED, {}]),
)
def test_texts_that_a_shell_reads_are_found_in_document_order(value: Any, name: str, schema: Any) -> None:
    definition = tool(schema, name)
    expected = [path for path, leaf in leaves(value) if isinstance(leaf, str) and is_shell(definition, path)]
    assert list(find_shell_texts(definition, value)) == expected


@rule("RS-66")
def test_large_value_is_searched_quickly() -> None:
    rows = [{"name": "a", "tags": ["x"] * 10} for _ in range(5_000)]
    definition = tool(with_arguments(rows={"type": "array", "items": {"type": "object"}}))
    assert least_seconds(lambda: list(find_shell_texts(definition, rows, ("rows",))), enough=2) < 2
