"""Values of every type in the arguments of a tool that a shell reads, run through the installed shells."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from easel.core.action.resolution import ResolvedCall, resolve_call
from easel.core.canvas.actions import CallTool, parse_action
from easel.core.shell.arguments import COMMAND_NAMES, is_shell
from easel.core.stream.json_text import to_json
from easel.core.stream.payload_limit import offload_large_values
from easel.core.tool.definition import ToolDefinition
from easel.core.values.template import Values, leaves
from easel.errors import BadInput
from tests.core.canvas.specs import BASH
from tests.core.shell.hostile import PRELUDE, SHELLS, corpus, shell_folder
from tests.core.values.test_references import some_json
from tests.requirements import case, rule
from tests.support.length import examples

_, TEXTS = corpus()
HOSTILE = [text for text in TEXTS if "\0" not in text and text.isprintable()]
# Values of every type, with hostile texts and with the names of commands inside.
values = st.recursive(
    st.sampled_from(HOSTILE) | st.booleans() | st.integers() | some_json,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*sorted(COMMAND_NAMES), "run", "a.b", "$value"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)
UNMARKED = ToolDefinition("laptop__Deploy", "", {"properties": {"cmd": {"type": "string"}, "data": {}}})
EVERY_TEXT = ToolDefinition("laptop__sh", "", {"properties": {"line": {"type": "string"}}})
NESTED = ToolDefinition(
    "laptop__Run", "", {"properties": {"steps": {"type": "array", "items": {"x-shell": True}}, "data": {}}}
)


def resolve(definition: ToolDefinition, args: Any, value: Any) -> ResolvedCall:
    raw = {
        "kind": "tool.call",
        "tool": definition.name,
        "args": args,
        "allowOptions": True,
        "missing": "empty",
    }
    action = parse_action("act", raw)
    assert isinstance(action, CallTool)
    state, offloaded = offload_large_values({"x": value})
    fetched = {part.artifact_id: part.content for part in offloaded}
    return resolve_call(action, definition, Values(state, {"x": value}, 1, fetched), "agent:main:main")


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else to_json(value)


@rule("RS-66", "RS-16", "RS-65")
@case("X1")
@given(values)
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_value_of_any_type_reaches_a_command_as_one_argument(tmp_path: Path, value: Any) -> None:
    text = as_text(value)
    if "\0" in text or any("\ud800" <= sign <= "\udfff" for sign in text):
        return
    folder = shell_folder(tmp_path)
    for definition, name in ((BASH, "command"), (UNMARKED, "cmd"), (EVERY_TEXT, "line")):
        call = resolve(definition, {name: 'show {{state.x}} "{{input.x}}"'}, value)
        assert call.shell_args == (f".{name}",)
        for shell in SHELLS[:2]:
            assert folder.run(shell, PRELUDE + call.args[name]) == f"{text}\0{text}\0".encode()
    assert not folder.is_breached


@rule("RS-66", "RS-16", "RS-65")
@case("X1")
@given(values)
@settings(max_examples=examples(100))
def test_value_of_any_type_is_refused_by_reference_where_a_shell_reads(value: Any) -> None:
    for definition, args in (
        (BASH, {"command": {"$value": "state.x"}}),
        (UNMARKED, {"cmd": {"$value": "input.x"}}),
        (EVERY_TEXT, {"line": {"$value": "state.x"}}),
        (NESTED, {"steps": {"$value": "state.x"}}),
        (NESTED, {"steps": ["ls", {"$value": "state.x"}]}),
    ):
        with pytest.raises(BadInput, match="a shell reads this argument"):
            resolve(definition, args, value)


@rule("RS-66", "RS-65")
@given(values)
@settings(max_examples=examples(200))
def test_value_arrives_exactly_unless_a_shell_reads_a_text_of_it(value: Any) -> None:
    for definition in (UNMARKED, NESTED):
        commands = [
            path
            for path, leaf in leaves(value, ("data",))
            if isinstance(leaf, str) and is_shell(definition, path)
        ]
        args = {"data": {"$value": "state.x"}}
        if commands:
            with pytest.raises(BadInput, match="a shell reads this text"):
                resolve(definition, args, value)
        else:
            call = resolve(definition, args, value)
            assert to_json(call.args) == to_json({"data": value})
            assert call.shell_args == ()
