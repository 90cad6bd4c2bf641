"""What of a spec may run: allowlist, consent, definitions; and what an action becomes when it is pressed."""

from dataclasses import replace
from typing import Any

import pytest

from easel.core.action.policy import (
    admit,
    check_reach,
    check_templates,
    confirmation,
    definition_of,
    needs_consent,
)
from easel.core.canvas.actions import (
    CallTool,
    Confirm,
    ResolvedCall,
    SendMessage,
    resolved_call,
    resolved_message,
)
from easel.core.canvas.spec import checked_spec
from easel.core.tool.definition import ToolDefinition
from easel.core.values.template import Values
from easel.errors import BadInput, Forbidden, NotFound, TooLarge, Unavailable
from tests.core.canvas.specs import BASH, BASH_SCHEMA, READ, TOOLS, example, with_action
from tests.requirements import case, rule

NOW = 1_730_000_000_000


def call(**action: Any) -> CallTool:
    found = checked_spec(with_action(**{"kind": "tool.call", "tool": "server-a__Bash"} | action)).actions[
        "act"
    ]
    assert isinstance(found, CallTool)
    return found


def pressed(action: CallTool, state: Any = None, given: Any = None, definition: ToolDefinition = BASH) -> Any:
    return resolved_call(action, definition, Values(state or {}, given, NOW), "agent:main:main").args


# --- the allowlist ------------------------------------------------------------------------------------------------------


@rule("CV-36", "CV-40")
@case("X5")
@pytest.mark.parametrize(
    "action_id",
    [
        "",
        "Deploy",
        "deploy ",
        "__proto__",
        "constructor",
        "toString",
        "tool.call",
        "server-a__Bash",
        "dеploy",
    ],
)
def test_only_a_declared_action_is_admitted(action_id: str) -> None:
    with pytest.raises(NotFound, match="There is no action"):
        admit(checked_spec(example()), action_id)


@rule("CV-40", "CV-41")
@case("X4")
@pytest.mark.parametrize(
    "policy",
    [
        ...,
        {},
        {"allow": []},
        {"allow": ["server-a__Read"]},
        {"allow": ["server-a__bash", "Server-a__Bash", "a__server-a__Bash"]},
    ],
)
def test_a_tool_that_is_not_named_exactly_is_refused(policy: Any) -> None:
    spec = checked_spec(example(toolPolicy=policy))
    with pytest.raises(Forbidden, match="does not name server-a__Bash"):
        admit(spec, "deploy")
    assert admit(spec, "setDeploying").action_id == "setDeploying"
    assert admit(spec, "assistantPlan").action_id == "assistantPlan"


@rule("CV-40")
def test_the_allowlist_comes_before_the_templates() -> None:
    """An action whose template cannot be filled is refused for its tool first."""
    spec = checked_spec(
        with_action(kind="tool.call", tool="other__Tool", args={"command": "{{state.nothing}}"})
    )
    with pytest.raises(Forbidden):
        admit(spec, "act")


@rule("RS-45")
def test_a_tool_without_a_definition_cannot_be_called() -> None:
    with pytest.raises(Unavailable, match="Tool server-a__Bash cannot be reached"):
        definition_of(call(), {})
    assert definition_of(call(), TOOLS) is BASH


# --- consent ------------------------------------------------------------------------------------------------------------

PLAIN = ToolDefinition("t", "", {})
CONSENT = [
    # confirm     tool                                         asks
    ("auto",      BASH,                                        True),
    ("auto",      PLAIN,                                       True),
    ("auto",      READ,                                        False),
    ("auto",      None,                                        True),
    ("auto",      replace(READ, destructive=True),             True),
    ("auto",      replace(PLAIN, idempotent=True),             True),
    ("always",    READ,                                        True),
    ("always",    BASH,                                        True),
    ("never",     BASH,                                        False),
    ("never",     None,                                        False),
]  # fmt: skip


@rule("RS-13", "CV-22", "RS-44", "RS-45")
@pytest.mark.parametrize("confirm, definition, asks", CONSENT)
def test_a_person_is_asked_unless_the_tool_only_reads(
    confirm: str, definition: ToolDefinition | None, asks: bool
) -> None:
    assert needs_consent(call(confirm=confirm), definition) is asks


@rule("RS-13", "RS-45")
def test_a_level_that_is_left_out_is_auto() -> None:
    assert call().confirm is Confirm.AUTO
    assert needs_consent(call(), BASH)


@rule("CV-22")
def test_what_calls_no_tool_asks_only_where_it_says_so() -> None:
    spec = checked_spec(example())
    for name in ("assistantPlan", "setDeploying"):
        assert not needs_consent(spec.actions[name], None)
        assert needs_consent(spec.actions[name], None, floor=Confirm.ALWAYS)
    asking = checked_spec(with_action(kind="state.patch", patch=[], confirm="always"))
    assert needs_consent(asking.actions["act"], None)


@rule("RS-14")
@pytest.mark.parametrize("declared", [*Confirm])
@pytest.mark.parametrize("floor", [*Confirm])
def test_the_server_raises_the_level_and_never_lowers_it(declared: Confirm, floor: Confirm) -> None:
    order = [Confirm.NEVER, Confirm.AUTO, Confirm.ALWAYS]
    assert (
        confirmation(call(confirm=declared.value), floor=floor)
        is order[max(order.index(declared), order.index(floor))]
    )


@rule("RS-59")
def test_an_agent_s_never_counts_as_auto_until_a_person_accepts() -> None:
    action = call(confirm="never")
    assert confirmation(action, is_accepted=False) is Confirm.AUTO
    assert needs_consent(action, BASH, is_accepted=False)
    assert not needs_consent(action, READ, is_accepted=False)
    assert not needs_consent(action, BASH, is_accepted=True)
    assert confirmation(call(confirm="always"), is_accepted=False) is Confirm.ALWAYS


@rule("RS-59")
def test_an_agent_s_canvas_reaches_no_further_than_the_agent() -> None:
    spec = checked_spec(example())
    check_reach(spec, spec.tools.__contains__)
    with pytest.raises(Forbidden, match="you may not call server-a__Bash yourself"):
        check_reach(spec, lambda tool: tool != "server-a__Bash")


# --- storing ------------------------------------------------------------------------------------------------------------


@rule("RS-16", "RS-45")
@case("X1")
def test_a_command_that_evaluates_a_value_makes_the_spec_invalid_where_the_tool_is_known() -> None:
    spec = checked_spec(
        with_action(kind="tool.call", tool="server-a__Bash", args={"command": "echo $(ls {{state.x}})"})
    )
    with pytest.raises(BadInput, match=r"^actions\.act\.args\.command: {{state\.x}} stands in \$\(…\)"):
        check_templates(spec, TOOLS)
    assert any("no tool server-a__Bash" in warning for warning in check_templates(spec, {}))
    with pytest.raises(BadInput, match=r"^actions\.act\.args\.command: "):
        pressed(call(args={"command": "echo $(ls {{state.x}})"}), {"x": "a"})


def test_a_command_without_placeholders_is_its_author_s_own() -> None:
    check_templates(
        checked_spec(
            with_action(kind="tool.call", tool="server-a__Bash", args={"command": "eval $(( `x` <("})
        ),
        TOOLS,
    )


@rule("RS-45")
def test_an_author_is_told_what_will_not_work() -> None:
    raw = example(toolPolicy={"allow": ["gone__Tool", "server-a__Read"]}, refresh=[])
    raw["actions"]["odd"] = {
        "kind": "tool.call",
        "tool": "gone__Tool",
        "args": {"a": ["{{state.x | upper}} {{state.x}}"]},
    }
    raw["actions"]["say"] = {"kind": "session.send", "message": "{{name}}"}
    assert check_templates(checked_spec(raw), TOOLS) == [
        "toolPolicy.allow: there is no tool gone__Tool now; an action that needs it fails until there is.",
        "actions.deploy.tool: server-a__Bash is not in toolPolicy.allow, so this action will be refused.",
        "actions.refreshLogs.tool: server-a__Bash is not in toolPolicy.allow, so this action will be refused.",
        "actions.setDeploying.patch[0]: the spec's state has no /status, which replace needs; `add` makes it.",
        "actions.odd.args: {{state.x | upper}} is no placeholder, and is sent as it stands.",
        "actions.say.message: {{name}} is no placeholder, and is sent as it stands.",
    ]
    quiet = {"state": {"a": 1}, "actions": {"p": {"kind": "state.patch", "patch": [{"op": "add", "path": "/b", "value": {}}, {"op": "replace", "path": "/b/c", "value": 1}, {"op": "remove", "path": "/a"}]}}}  # fmt: skip
    assert check_templates(checked_spec(quiet), TOOLS) == []


# --- pressing -----------------------------------------------------------------------------------------------------------


@rule("CV-26", "RS-16")
def test_the_example_becomes_the_command_that_one_would_type() -> None:
    deploy = admit(checked_spec(example()), "deploy")
    assert isinstance(deploy, CallTool)
    assert pressed(deploy, {"service": "api", "version": "1.2.7"}) == {"command": "./deploy api 1.2.7"}
    assert pressed(deploy, {"service": "my service", "version": "$(x)"}) == {
        "command": "./deploy 'my service' '$(x)'"
    }


@rule("RS-44", "RS-16", "CV-27")
def test_only_what_a_shell_reads_is_quoted() -> None:
    action = call(args={"command": "cat {{input.a}}", "workdir": "{{input.a}}", "n": 5})
    assert pressed(action, given={"a": "a b; ls"}) == {
        "command": "cat 'a b; ls'",
        "workdir": "a b; ls",
        "n": 5,
    }
    unmarked = replace(BASH, schema={"properties": {"command": {"type": "string"}}})
    assert pressed(action, given={"a": "a b; ls"}, definition=unmarked)["command"] == "cat a b; ls"


@rule("RS-57", "CV-28")
def test_a_missing_value_fails_a_command_and_nothing_else() -> None:
    action = call(args={"command": "rm -r build/{{state.name}}", "workdir": "/srv/{{state.name}}"})
    for state in ({}, {"name": None}):
        with pytest.raises(BadInput, match=r"^actions\.act\.args\.command: {{state\.name}} has no value"):
            pressed(action, state)
    assert pressed(call(args={"workdir": "/srv/{{state.name}}"})) == {"workdir": "/srv/"}
    lenient = call(args={"command": "rm -r build/{{state.name}}"}, missing="empty")
    assert pressed(lenient) == {"command": "rm -r build/''"}


@rule("RS-16")
@case("X2")
def test_an_option_is_refused_unless_the_action_allows_it() -> None:
    action = call(args={"command": "cat {{input.a}}"})
    with pytest.raises(
        BadInput, match=r"actions\.act\.args\.command: the value of {{input\.a}} begins with -"
    ):
        pressed(action, given={"a": "--output=/etc/x"})
    assert pressed(call(args={"command": "cat {{input.a}}"}, allowOptions=True), given={"a": "-n"}) == {
        "command": "cat -n"
    }


@case("X6")
def test_a_resolved_call_is_named_by_what_it_is() -> None:
    first = resolved_call(
        call(args={"command": "ls {{state.a}}", "n": 1}), BASH, Values({"a": "x"}, None, NOW), "agent:main:a"
    )
    same = ResolvedCall("server-a__Bash", {"n": 1, "command": "ls x"}, "agent:main:a", (".command",))
    assert first.digest == same.digest
    others = [
        ResolvedCall("server-a__Bash", {"n": 1, "command": "ls y"}, same.session_key, same.read_by_shell),
        ResolvedCall("server-b__Bash", same.args, same.session_key, same.read_by_shell),
        ResolvedCall(same.tool, {"n": "1", "command": "ls x"}, same.session_key, same.read_by_shell),
        ResolvedCall(same.tool, same.args, "agent:main:b", same.read_by_shell),
    ]
    assert first.digest not in {one.digest for one in others}


@rule("CV-24", "CV-26")
def test_a_message_is_filled_as_text() -> None:
    action = checked_spec(
        with_action(
            kind="session.send",
            message="Deploy {{state.a}} at {{runtime.now}}, {{input.who}}: {{state.gone}}.",
        )
    ).actions["act"]
    assert isinstance(action, SendMessage)
    assert (
        resolved_message(action, Values({"a": "$(x) 'y'"}, {"who": {"n": 1}}, NOW))
        == f"Deploy $(x) 'y' at {NOW}, {{\"n\":1}}: ."
    )
    with pytest.raises(TooLarge):
        resolved_message(action, Values({"a": "x" * 100}, None, NOW), limit=50)


def test_arguments_in_arrays_are_commands_too() -> None:
    tool = replace(
        BASH,
        schema={
            "properties": {"steps": {"items": {"properties": {"run": BASH_SCHEMA["properties"]["command"]}}}}
        },
    )
    action = call(args={"steps": [{"run": "ls {{input.a}}", "name": "{{input.a}}"}]})
    assert pressed(action, given={"a": "a b"}, definition=tool) == {
        "steps": [{"run": "ls 'a b'", "name": "a b"}]
    }
    bad = call(args={"steps": [{"run": "eval {{input.a}}"}]})
    with pytest.raises(BadInput, match=r"^actions\.act\.args\.steps\[0\]\.run: "):
        pressed(bad, given={"a": "a"}, definition=tool)
