"""Resolution of actions: placeholders become arguments and messages, and values in commands are quoted."""

from dataclasses import replace
from typing import Any

import pytest

from easel.core.action.policy import admit
from easel.core.action.resolution import resolve_call, resolve_message
from easel.core.canvas.actions import CallTool, SendMessage
from easel.core.canvas.spec import parse_spec
from easel.core.tool.definition import ToolDefinition
from easel.core.values.references import SecretUse
from easel.core.values.template import Values
from easel.errors import BadInput, TooLarge
from tests.core.canvas.specs import BASH, BASH_SCHEMA, example, with_action
from tests.requirements import case, rule

NOW = 1_730_000_000_000


def call(**action: Any) -> CallTool:
    raw = with_action(**{"kind": "tool.call", "tool": "server-a__Bash"} | action)
    policy = {**raw.get("toolPolicy", {}), "secrets": ["TOKEN", "OTHER", "A", "B"]}
    found = parse_spec({**raw, "toolPolicy": policy}).actions["act"]
    assert isinstance(found, CallTool)
    return found


def resolve(
    action: CallTool, state: Any = None, values: Any = None, definition: ToolDefinition = BASH
) -> Any:
    return resolve_call(action, definition, Values(state or {}, values, NOW), "agent:main:main").args


@rule("RS-16", "RS-45")
@case("X1")
def test_command_that_would_evaluate_a_value_is_refused() -> None:
    with pytest.raises(BadInput, match=r"^actions\.act\.args\.command: "):
        resolve(call(args={"command": "echo $(ls {{state.x}})"}), {"x": "a"})


@rule("CV-26", "RS-16")
def test_placeholders_become_one_quoted_argument_each() -> None:
    deploy = admit(parse_spec(example()), "deploy")
    assert isinstance(deploy, CallTool)
    assert resolve(deploy, {"service": "api", "version": "1.2.7"}) == {"command": "./deploy api 1.2.7"}
    assert resolve(deploy, {"service": "my service", "version": "$(x)"}) == {
        "command": "./deploy 'my service' '$(x)'"
    }


@rule("RS-44", "RS-16", "CV-27")
def test_only_shell_arguments_are_quoted() -> None:
    action = call(args={"command": "cat {{input.a}}", "workdir": "{{input.a}}", "n": 5})
    assert resolve(action, values={"a": "a b; ls"}) == {
        "command": "cat 'a b; ls'",
        "workdir": "a b; ls",
        "n": 5,
    }
    no_shell = replace(BASH, schema={"properties": {"command": {"type": "string", "x-shell": False}}})
    assert resolve(action, values={"a": "a b; ls"}, definition=no_shell)["command"] == "cat a b; ls"


@rule("RS-65")
def test_node_that_does_not_mark_its_command_gets_quoted_values() -> None:
    unmarked = replace(BASH, schema={"properties": {"command": {"type": "string"}}})
    action = call(args={"command": "./deploy {{state.version}}"})
    assert resolve(action, {"version": "1.0; touch PWN; #"}, definition=unmarked) == {
        "command": "./deploy '1.0; touch PWN; #'"
    }


@rule("RS-57", "CV-28")
def test_missing_value_is_refused_in_a_command_only() -> None:
    action = call(args={"command": "rm -r build/{{state.name}}", "workdir": "/srv/{{state.name}}"})
    for state in ({}, {"name": None}):
        with pytest.raises(BadInput, match=r"^actions\.act\.args\.command: {{state\.name}} has no value"):
            resolve(action, state)
    assert resolve(call(args={"workdir": "/srv/{{state.name}}"})) == {"workdir": "/srv/"}
    lenient = call(args={"command": "rm -r build/{{state.name}}"}, missing="empty")
    assert resolve(lenient) == {"command": "rm -r build/''"}


@rule("RS-16")
@case("X2")
def test_value_that_looks_like_an_option_is_refused_unless_allowed() -> None:
    action = call(args={"command": "cat {{input.a}}"})
    with pytest.raises(
        BadInput, match=r"actions\.act\.args\.command: the value of {{input\.a}} begins with -"
    ):
        resolve(action, values={"a": "--output=/etc/x"})
    assert resolve(call(args={"command": "cat {{input.a}}"}, allowOptions=True), values={"a": "-n"}) == {
        "command": "cat -n"
    }


@rule("CV-24", "CV-26")
def test_message_is_filled_as_plain_text() -> None:
    action = parse_spec(
        with_action(
            kind="session.send",
            message="Deploy {{state.a}} at {{runtime.now}}, {{input.who}}: {{state.gone}}.",
        )
    ).actions["act"]
    assert isinstance(action, SendMessage)
    assert (
        resolve_message(action, Values({"a": "$(x) 'y'"}, {"who": {"n": 1}}, NOW))
        == f"Deploy $(x) 'y' at {NOW}, {{\"n\":1}}: ."
    )
    with pytest.raises(TooLarge):
        resolve_message(action, Values({"a": "x" * 100}, None, NOW), limit=50)


def test_nested_shell_arguments_are_quoted_too() -> None:
    tool = replace(
        BASH,
        schema={
            "properties": {"steps": {"items": {"properties": {"run": BASH_SCHEMA["properties"]["command"]}}}}
        },
    )
    action = call(args={"steps": [{"run": "ls {{input.a}}", "name": "{{input.a}}"}]})
    assert resolve(action, values={"a": "a b"}, definition=tool) == {
        "steps": [{"run": "ls 'a b'", "name": "a b"}]
    }
    bad = call(args={"steps": [{"run": "eval {{input.a}}"}]})
    with pytest.raises(BadInput, match=r"^actions\.act\.args\.steps\[0\]\.run: "):
        resolve(bad, values={"a": "a"}, definition=tool)


# --- references ---------------------------------------------------------------------------------------------

SEARCH = ToolDefinition(
    "server-a__Search",
    "",
    {
        "type": "object",
        "properties": {
            "limit": {"type": "integer"},
            "filter": {"type": "object"},
            "steps": {"type": "array", "items": {"properties": {"run": {"x-shell": True}}}},
            "note": {"type": "object", "x-shell": False},
        },
    },
)


@rule("RS-66")
def test_reference_hands_over_the_value_itself() -> None:
    action = call(
        args={"limit": {"$value": "state.n"}, "filter": {"ids": {"$value": "input.ids"}}, "q": "{{state.n}}"}
    )
    resolved = resolve_call(
        action,
        SEARCH,
        Values({"n": 5}, {"ids": [1, 2]}, NOW),
        "agent:main:main",
    )
    assert resolved.args == {"limit": 5, "filter": {"ids": [1, 2]}, "q": "5"}
    assert resolved.secrets == ()
    with pytest.raises(BadInput, match=r'^actions\.act\.args\.limit: {"\$value": "state.n"} has no value'):
        resolve(action, values={"ids": []}, definition=SEARCH)


@rule("RS-66")
def test_call_has_the_names_of_its_secrets_and_their_exact_paths() -> None:
    action = call(args={"filter": {"a.b": [{"$secret": "TOKEN"}]}})
    resolved = resolve_call(action, SEARCH, Values({}, {}, NOW), "agent:main:main")
    assert resolved.args == {"filter": {"a.b": ["TOKEN"]}}
    assert resolved.secrets == (SecretUse(("filter", "a.b", 0), "TOKEN"),)


IN_A_COMMAND: list[tuple[dict[str, Any], str]] = [
    ({"command": {"$value": "state.x"}}, "command"),
    ({"command": {"$secret": "TOKEN"}}, "command"),
    ({"command": [{"$value": "state.x"}]}, "command[0]"),
]
ABOVE_A_COMMAND: list[tuple[dict[str, Any], str]] = [
    ({"steps": {"$value": "state.x"}}, "steps"),
    ({"steps": [{"$secret": "TOKEN"}]}, "steps[0]"),
    ({"steps": [{"run": {"$value": "state.x"}}]}, "steps[0].run"),
    ({"command": {"$value": "state.x"}}, "command"),  # by its name
]


@rule("RS-66", "RS-16", "RS-65")
@pytest.mark.parametrize(
    "args, at, definition",
    [(*row, BASH) for row in IN_A_COMMAND] + [(*row, SEARCH) for row in ABOVE_A_COMMAND],
)
@pytest.mark.parametrize("value", [5, True, None, "x", ["ls"], {"run": "ls"}], ids=repr)
def test_reference_in_or_above_a_command_is_refused_whatever_its_value(
    args: dict[str, Any], at: str, definition: ToolDefinition, value: Any
) -> None:
    with pytest.raises(BadInput) as refused:
        resolve(call(args=args), {"x": value}, definition=definition)
    assert refused.value.message.startswith(f"actions.act.args.{at}: a shell reads this argument")


@rule("RS-66", "RS-65")
@pytest.mark.parametrize("name", ["command", "cmd", "script", "shell"])
def test_value_with_a_text_that_counts_as_a_command_is_refused(name: str) -> None:
    action = call(args={"filter": {"$value": "state.x"}})
    with pytest.raises(
        BadInput, match=rf"^actions\.act\.args\.filter\.deep\[1\]\.{name}: a shell reads this text"
    ):
        resolve(action, {"x": {"deep": [0, {name: "ls"}]}}, definition=SEARCH)
    assert resolve(action, {"x": {name: 5}}, definition=SEARCH) == {"filter": {name: 5}}
    note = call(args={"note": {"$value": "state.x"}})
    assert resolve(note, {"x": {name: "ls"}}, definition=SEARCH) == {"note": {name: "ls"}}


@rule("RS-66")
def test_literal_in_a_command_stays_text_of_the_author() -> None:
    action = call(args={"command": {"$literal": "echo {{state.x}}"}})
    resolved = resolve_call(action, BASH, Values({"x": "$(ls)"}, {}, NOW), "agent:main:main")
    assert resolved.args == {"command": "echo {{state.x}}"}
    assert resolved.shell_args == (".command",)


@rule("RS-66")
@pytest.mark.parametrize("args", [{"$value": "state.x"}, {"$secret": "A"}, {"$literal": {"command": "ls"}}])
def test_reference_cannot_stand_for_all_arguments(args: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=r"^actions\.act\.args: must name the arguments"):
        call(args=args)
