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


@rule("RS-71", "RS-45")
@case("X1")
def test_command_whose_program_a_value_would_choose_is_refused() -> None:
    with pytest.raises(BadInput, match=r"^actions\.act\.args\.command: "):
        resolve(call(args={"command": "echo; {{state.x}}"}), {"x": "a"})


@rule("CV-26", "RS-71")
def test_plain_values_are_inserted_as_they_are_and_others_fail_the_action() -> None:
    deploy = admit(parse_spec(example()), "deploy")
    assert isinstance(deploy, CallTool)
    assert resolve(deploy, {"service": "api", "version": "1.2.7"}) == {"command": "./deploy api 1.2.7"}
    with pytest.raises(
        BadInput, match=r"^actions\.deploy\.args\.command: the value of {{state\.version}} has"
    ):
        resolve(deploy, {"service": "api", "version": "$(x)"})


@rule("RS-71", "RS-44")
def test_any_text_is_a_variable_of_the_command_and_other_arguments_have_it_as_it_is() -> None:
    args = {"command": "cat '{{input.a}}' {{input.b}}", "note": "{{input.a}}", "n": 5}
    action = call(args=args, text=["input.b", "input.a"])
    takes = {**BASH_SCHEMA, "x-secrets": True}
    takes["properties"] = {**takes["properties"], "note": {"type": "string", "x-shell": False}}
    values = Values({}, {"a": "a b; $(ls)", "b": "it's"}, NOW)
    resolved = resolve_call(action, replace(BASH, schema=takes), values, "agent:main:main")
    command = """cat ''"${EASEL_TEXT_2}"'' "${EASEL_TEXT_1}\""""
    assert resolved.args == {"command": command, "note": "a b; $(ls)", "n": 5}
    assert resolved.texts == (("EASEL_TEXT_1", "it's"), ("EASEL_TEXT_2", "a b; $(ls)"))
    with pytest.raises(BadInput, match=r"server-a__Bash takes no variables"):
        resolve_call(action, BASH, values, "agent:main:main")


def look(name: str, **properties: Any) -> ToolDefinition:
    return ToolDefinition(f"node__{name}", "", {"type": "object", "properties": properties})


# What the third review ran on a node: the value became a command.
INJECTED: list[tuple[ToolDefinition, dict[str, Any]]] = [
    (look("shell", command={"type": "array"}), {"command": ["bash", "-lc", "echo deploy {{state.v}}"]}),
    (look("shell", command={"type": "array"}), {"command": ["bash", "-lc", "{{state.v}}"]}),
    (look("local_shell", action={}), {"action": {"command": ["sh", "-c", "{{state.v}}"]}}),
    (look("Bash", command={}), {"command": {"text": "echo {{state.v}}"}}),
    (look("run_command", CommandLine={}), {"CommandLine": "echo {{state.v}}"}),
    (look("batch", commands={}), {"commands": ["echo a", "echo {{state.v}}"]}),
    (look("interact_with_process", input={}), {"input": "echo {{state.v}}"}),
    (look("zsh", line={}), {"line": "{{state.v}}"}),
    (look("ssh", host={}), {"host": "{{state.v}}"}),
    (look("exec", any={}), {"any": {"$value": "state.v"}}),
]


@rule("RS-71")
@pytest.mark.parametrize("definition, args", INJECTED, ids=lambda value: getattr(value, "name", None))
def test_no_value_becomes_a_command_of_a_tool_that_looks_like_a_shell(
    definition: ToolDefinition, args: dict[str, Any]
) -> None:
    with pytest.raises(BadInput, match=r"^actions\.act\.args\."):
        resolve(call(args=args), {"v": "1.0; echo RAN-$((6*7))"}, definition=definition)


@rule("RS-71")
def test_plain_values_numbers_and_flags_reach_a_tool_that_looks_like_a_shell_as_they_are() -> None:
    args = {
        "command": ["sh", "-c", "echo {{state.v}}"],
        "cwd": "/srv/{{state.v}}",
        "n": {"$value": "state.n"},
    }
    assert resolve(call(args=args), {"v": "1.0", "n": 5}, definition=look("shell", command={})) == {
        "command": ["sh", "-c", "echo 1.0"],
        "cwd": "/srv/1.0",
        "n": 5,
    }


@rule("RS-71")
def test_person_says_by_the_policy_which_arguments_a_shell_reads() -> None:
    def run(definition: ToolDefinition, policy: dict[str, Any]) -> Any:
        raw = {
            "toolPolicy": policy,
            "actions": {"a": {"kind": "tool.call", "tool": definition.name, "args": args}},
        }
        spec = parse_spec(raw)
        action = spec.actions["a"]
        assert isinstance(action, CallTool)
        return resolve_call(action, definition, Values({"x": "a b"}, {}, NOW), "s", policy=spec).args

    args = {"line": "echo {{state.x}}"}
    assert run(look("Print", line={}), {}) == {"line": "echo a b"}
    with pytest.raises(BadInput, match="must be plain"):
        run(look("Print", line={}), {"shell": {"node__Print": ["line"]}})
    with pytest.raises(BadInput, match="must be plain"):
        run(look("shell", line={}), {"data": {"node__shell": ["other"]}})
    assert run(look("shell", line={}), {"data": {"node__shell": ["line"]}}) == {"line": "echo a b"}


@rule("RS-71")
def test_data_may_have_any_names_and_texts() -> None:
    publish = look("Publish", topic={"type": "string"}, payload={"type": "object"})
    payload = {"command": "say {{state.x}}", "script": "{{state.x}}", "shell": {"$value": "state"}}
    payload["shell"] = {"$value": "state.p"}
    action = call(args={"topic": "a/{{state.x}}", "payload": payload})
    assert resolve(action, {"x": "living room", "p": {"cmd": "it's"}}, definition=publish) == {
        "topic": "a/living room",
        "payload": {"command": "say living room", "script": "living room", "shell": {"cmd": "it's"}},
    }


@rule("RS-57", "CV-28")
def test_missing_value_is_refused_in_a_command_only() -> None:
    action = call(args={"command": "rm -r build/{{state.name}}"})
    for state in ({}, {"name": None}):
        with pytest.raises(BadInput, match=r"^actions\.act\.args\.command: {{state\.name}} has no value"):
            resolve(action, state)
    assert resolve(call(args={"note": "/srv/{{state.name}}"}), definition=SEARCH) == {"note": "/srv/"}
    lenient = call(args={"command": "rm -r build/{{state.name}}"}, missing="empty")
    assert resolve(lenient) == {"command": "rm -r build/''"}


@rule("RS-71", "RS-16")
@case("X2")
def test_value_that_looks_like_an_option_is_refused_unless_the_placeholder_is_named() -> None:
    action = call(args={"command": "cat {{input.a}}"})
    with pytest.raises(
        BadInput, match=r"actions\.act\.args\.command: the value of {{input\.a}} begins with -"
    ):
        resolve(action, values={"a": "--output"})
    allowed = call(args={"command": "cat {{input.a}}"}, allowOptions=["input.a"])
    assert resolve(allowed, values={"a": "-n"}) == {"command": "cat -n"}


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


@rule("RS-44", "RS-71")
def test_marked_argument_inside_of_a_list_is_a_command() -> None:
    item = {"run": {"type": "string", "x-shell": True}, "name": {"type": "string"}}
    tool = look("Deploy", steps={"items": {"properties": item}})
    action = call(args={"steps": [{"run": "ls {{input.a}}", "name": "{{input.b}}"}]})
    assert resolve(action, values={"a": "a", "b": "a b"}, definition=tool) == {
        "steps": [{"run": "ls a", "name": "a b"}]
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


@rule("RS-66", "RS-71")
@pytest.mark.parametrize(
    "args, at",
    [
        ({"command": {"$value": "state.x"}}, "command"),
        ({"command": {"$secret": "TOKEN"}}, "command"),
        ({"command": [{"$value": "state.x"}]}, r"command\[0\]"),
    ],
)
def test_reference_in_place_of_a_command_is_refused(args: dict[str, Any], at: str) -> None:
    with pytest.raises(BadInput, match=rf"^actions\.act\.args\.{at}: a shell reads this argument"):
        resolve(call(args=args), {"x": "ls"})


@rule("RS-66", "RS-71")
def test_inserted_value_with_a_text_that_a_shell_reads_is_refused() -> None:
    action = call(args={"steps": {"$value": "state.x"}})
    with pytest.raises(
        BadInput, match=r"^actions\.act\.args\.steps\[1\]\.run: a shell reads this text.*toolPolicy"
    ):
        resolve(action, {"x": [0, {"run": "ls"}]}, definition=SEARCH)
    assert resolve(action, {"x": [{"run": 5}]}, definition=SEARCH) == {"steps": [{"run": 5}]}


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
