"""The arguments of a tool that a shell reads: by its mark, by its look, and by what a person says."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel.core.tool.definition import ToolDefinition
from easel.core.tool.shell_arguments import Reading, ShellArguments
from easel.core.values.references import leaves
from tests.core.stream.costs import least_seconds
from tests.requirements import rule


def tool(name: str, description: str = "", **properties: Any) -> ToolDefinition:
    return ToolDefinition(f"laptop__{name}", description, {"type": "object", "properties": properties})


TEXT = {"type": "string"}
SHELL = {"type": "string", "x-shell": True}
MARKED = tool(
    "Deploy",
    command=SHELL,
    workdir={"type": "string", "x-shell": False},
    steps={"type": "array", "items": {"type": "object", "properties": {"run": SHELL, "name": TEXT}}},
    both={"type": "array", "prefixItems": [SHELL, {"type": "string", "x-shell": False}]},
    either={"anyOf": [{"type": "null"}, SHELL]},
    whole={"type": "object", "x-shell": True},
    matched={"patternProperties": {"^run_": SHELL}},
    data={"type": "object", "x-shell": False},
)


@rule("RS-44", "RS-71")
@pytest.mark.parametrize(
    "path, expected",
    [
        (("command",), Reading.COMMAND),
        (("workdir",), Reading.DATA),
        (("steps", 3, "run"), Reading.COMMAND),
        (("both", 0), Reading.COMMAND),
        (("both", 1), Reading.DATA),
        (("either",), Reading.COMMAND),
        (("whole", "deep", 3), Reading.COMMAND),
        (("matched", "else"), Reading.COMMAND),
        (("data", "command"), Reading.DATA),
        (("steps", 0, "name"), Reading.WORD),
    ],
)
def test_mark_in_the_schema_decides(path: tuple[str | int, ...], expected: Reading) -> None:
    assert ShellArguments(MARKED).read(path) is expected


# The shapes of the third review: each of these values reached a shell without a check.
SHAPES: list[tuple[ToolDefinition, tuple[str | int, ...]]] = [
    (tool("shell", command={"type": "array", "items": TEXT}), ("command", 2)),
    (tool("local_shell", action={"type": "object"}), ("action", "command", 2)),
    (tool("Bash", command={"type": "object"}), ("command", "text")),
    (tool("run_command", CommandLine=TEXT), ("CommandLine",)),
    (tool("batch", commands={"type": "array"}), ("commands", 0)),
    (tool("run_shell_script", script_content=TEXT), ("script_content",)),
    (tool("interact_with_process", input=TEXT), ("input",)),
    (tool("PowerShell", Command=TEXT), ("Command",)),
    (tool("run_bash", bash=TEXT), ("bash",)),
    (tool("zsh", line=TEXT), ("line",)),
    (tool("terminal", input=TEXT), ("input",)),
    (tool("shell_exec", cmd_str=TEXT), ("cmd_str",)),
    (tool("run_shell", code=TEXT), ("code",)),
    (tool("SSHExec", host=TEXT), ("host",)),
    (tool("Run", "Runs a program in a terminal.", what=TEXT), ("what",)),
    (tool("Deploy", script=TEXT, target=TEXT), ("target",)),
    (tool("exec"), ("any", 0, "thing")),
]


@rule("RS-71")
@pytest.mark.parametrize("definition, path", SHAPES, ids=lambda value: getattr(value, "name", None))
def test_every_text_of_a_tool_that_looks_like_a_shell_counts(
    definition: ToolDefinition, path: tuple[str | int, ...]
) -> None:
    assert ShellArguments(definition).read(path) is not Reading.DATA
    assert ShellArguments(definition, data=[str(path[0])]).read(path) is Reading.DATA
    assert ShellArguments(definition).read(()) is not Reading.DATA


@rule("RS-71")
@pytest.mark.parametrize(
    "definition, path",
    [
        (
            tool("Publish", "Sends a message to a lamp.", topic=TEXT, payload={"type": "object"}),
            ("payload", "command"),
        ),
        (tool("Search", "Finds shelled nuts; executes nothing of yours.", query=TEXT), ("query",)),
        (ToolDefinition("gsv__Note", "Keeps a command.", {"properties": {"script": TEXT}}), ("script",)),
        (
            ToolDefinition("local__Bash", "", {"properties": {"command": SHELL, "workdir": TEXT}}),
            ("workdir",),
        ),
    ],
)
def test_other_texts_are_data_whatever_their_names(definition: ToolDefinition, path: tuple[str, ...]) -> None:
    assert ShellArguments(definition).read(path) is Reading.DATA
    assert ShellArguments(definition, [path[0]]).read(path) is Reading.COMMAND


@rule("RS-44", "RS-66")
@given(
    st.recursive(
        st.just("text") | st.integers(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from([*MARKED.schema["properties"], "run", "name", "cmd"]), inner)
        ),
        max_leaves=12,
    )
)
def test_texts_that_a_shell_reads_are_found_in_document_order(value: Any) -> None:
    reads = ShellArguments(MARKED)
    expected = [
        path for path, leaf in leaves(value) if isinstance(leaf, str) and reads.read(path) is not Reading.DATA
    ]
    assert list(reads.find_texts(value)) == expected


@rule("RS-66")
def test_large_value_is_searched_quickly() -> None:
    rows = [{"name": "a", "tags": ["x"] * 10} for _ in range(5_000)]
    reads = ShellArguments(tool("shell", rows={"type": "array", "items": {"type": "object"}}))
    assert least_seconds(lambda: list(reads.find_texts(rows, ("rows",))), enough=2) < 2
