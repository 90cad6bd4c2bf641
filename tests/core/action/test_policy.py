"""The policy of actions: allowlist, confirmation, and what tool definitions forbid."""

from dataclasses import replace
from typing import Any

import pytest

from easel.core.action.policy import (
    admit,
    check_gesture,
    check_reach,
    check_templates,
    collect_problems,
    confirmation,
    definition_of,
    needs_consent,
)
from easel.core.canvas.actions import CallTool, Confirm
from easel.core.canvas.spec import DEFAULT_LIMITS, parse_spec, read_spec
from easel.core.problems import Problems, problems_of
from easel.core.tool.definition import ToolDefinition
from easel.core.tool.node import why_missing
from easel.errors import BadInput, Forbidden, NotFound, Unavailable
from tests.core.canvas.specs import BASH, READ, TOOLS, example, with_action
from tests.requirements import case, rule


def call(**action: Any) -> CallTool:
    found = parse_spec(with_action(**{"kind": "tool.call", "tool": "server-a__Bash"} | action)).actions["act"]
    assert isinstance(found, CallTool)
    return found


@rule("RS-63")
def test_page_of_an_unaccepted_canvas_starts_no_tool_without_a_gesture() -> None:
    tool = call(confirm="never")
    with pytest.raises(Forbidden, match="without a click or key press"):
        check_gesture(tool, has_gesture=False, is_accepted=False)
    check_gesture(tool, has_gesture=True, is_accepted=False)
    check_gesture(tool, has_gesture=False, is_accepted=True)
    patch = {"kind": "state.patch", "patch": [{"op": "add", "path": "/a", "value": 1}]}
    check_gesture(parse_spec(with_action(**patch)).actions["act"], has_gesture=False, is_accepted=False)


# --- the allowlist --------------------------------------------------------------------------------


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
        admit(parse_spec(example()), action_id)


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
def test_tool_that_is_not_listed_exactly_is_refused(policy: Any) -> None:
    spec = parse_spec(example(toolPolicy=policy))
    with pytest.raises(Forbidden, match="does not list server-a__Bash"):
        admit(spec, "deploy")
    assert admit(spec, "setDeploying").action_id == "setDeploying"
    assert admit(spec, "assistantPlan").action_id == "assistantPlan"


@rule("CV-40")
def test_allowlist_is_checked_before_templates() -> None:
    """An action whose template cannot be filled is refused for its tool first."""
    spec = parse_spec(
        with_action(kind="tool.call", tool="other__Tool", args={"command": "{{state.nothing}}"})
    )
    with pytest.raises(Forbidden):
        admit(spec, "act")


@rule("RS-45")
def test_tool_without_definition_is_unavailable_and_the_error_says_why() -> None:
    with pytest.raises(Unavailable) as refused:
        definition_of(call(), {})
    assert refused.value.message == (
        "Tool server-a__Bash is unavailable: node server-a is not connected or no longer offers it. "
        "Nothing was changed."
    )
    assert refused.value.retry_after is None, "trying again in a moment does not help"
    assert definition_of(call(), TOOLS) is BASH


@pytest.mark.parametrize(
    "name, why",
    [
        ("local__Bash", "commands are off: install it."),
        ("gsv__Ecko", "did you mean gsv__Echo?"),
        ("local__Raed", "did you mean local__Read?"),
        ("local__Nothing", "this server has none of this name."),
        ("server-b__Echo", "node server-b is not connected or no longer offers it."),
        ("gsv", "this server has none of this name."),
    ],
)
def test_missing_tool_is_explained_by_its_machine_alone(name: str, why: str) -> None:
    """The nearest name of another machine would do something else."""
    known = ["gsv__Echo", "local__Read", "local__Glob", "server-a__Echo"]
    assert why_missing(name, known, {"local__Bash": "commands are off: install it."}) == why


# --- confirmation ---------------------------------------------------------------------------------

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
def test_tool_that_is_not_read_only_needs_confirmation(
    confirm: str, definition: ToolDefinition | None, asks: bool
) -> None:
    assert needs_consent(call(confirm=confirm), definition) is asks


@rule("RS-13", "RS-45")
def test_default_confirmation_level_is_auto() -> None:
    assert call().confirm is Confirm.AUTO
    assert needs_consent(call(), BASH)


@rule("CV-22")
def test_message_and_patch_need_confirmation_only_if_declared() -> None:
    spec = parse_spec(example())
    for name in ("assistantPlan", "setDeploying"):
        assert not needs_consent(spec.actions[name], None)
        assert needs_consent(spec.actions[name], None, floor=Confirm.ALWAYS)
    asking = parse_spec(with_action(kind="state.patch", patch=[], confirm="always"))
    assert needs_consent(asking.actions["act"], None)


@rule("RS-14")
@pytest.mark.parametrize("declared", [*Confirm])
@pytest.mark.parametrize("floor", [*Confirm])
def test_server_floor_raises_the_level_and_never_lowers_it(declared: Confirm, floor: Confirm) -> None:
    order = [Confirm.NEVER, Confirm.AUTO, Confirm.ALWAYS]
    assert (
        confirmation(call(confirm=declared.value), floor=floor)
        is order[max(order.index(declared), order.index(floor))]
    )


@rule("RS-59")
def test_never_counts_as_auto_until_a_person_accepts_the_spec() -> None:
    action = call(confirm="never")
    assert confirmation(action, is_accepted=False) is Confirm.AUTO
    assert needs_consent(action, BASH, is_accepted=False)
    assert not needs_consent(action, READ, is_accepted=False)
    assert not needs_consent(action, BASH, is_accepted=True)
    assert confirmation(call(confirm="always"), is_accepted=False) is Confirm.ALWAYS


@rule("RS-59")
def test_spec_must_not_allow_a_tool_that_its_author_may_not_call() -> None:
    spec = parse_spec(example())
    check_reach(spec, spec.tools.__contains__)
    with pytest.raises(Forbidden, match="you may not call server-a__Bash"):
        check_reach(spec, lambda tool: tool != "server-a__Bash")


# --- storing --------------------------------------------------------------------------------------


@rule("RS-16", "RS-45")
@case("X1")
def test_spec_with_a_command_that_would_evaluate_a_value_is_refused() -> None:
    spec = parse_spec(
        with_action(kind="tool.call", tool="server-a__Bash", args={"command": "echo $(ls {{state.x}})"})
    )
    with pytest.raises(BadInput, match=r"^actions\.act\.args\.command: {{state\.x}} must not be in \$\(…\)"):
        check_templates(spec, TOOLS)
    assert any("server-a__Bash does not exist" in warning for warning in check_templates(spec, {}))


@rule("RS-66", "RS-16", "RS-65")
@pytest.mark.parametrize("reference", [{"$value": "state.x"}, {"$secret": "TOKEN"}], ids=str)
def test_spec_with_a_reference_in_a_command_is_refused(reference: dict[str, str]) -> None:
    raw = with_action(kind="tool.call", tool="server-a__Bash", args={"command": reference})
    raw["toolPolicy"] = {**raw.get("toolPolicy", {}), "secrets": ["TOKEN"]}
    spec = parse_spec(raw)
    with pytest.raises(BadInput, match=r"^actions\.act\.args\.command: a shell reads this argument"):
        check_templates(spec, TOOLS)
    unmarked = replace(BASH, schema={"properties": {"command": {"type": "string"}}})
    with pytest.raises(BadInput, match=r"^actions\.act\.args\.command: "):
        check_templates(spec, {"server-a__Bash": unmarked})
    elsewhere = with_action(kind="tool.call", tool="server-a__Bash", args={"workdir": reference})
    check_templates(parse_spec({**elsewhere, "toolPolicy": raw["toolPolicy"]}), TOOLS)


@rule("RS-66", "RS-16")
def test_all_unsafe_commands_are_reported_with_the_other_problems() -> None:
    raw = example(bindings={"b": "deply"}, refresh=[{"id": "r", "everyMs": 5_000, "action": "deploy"}])
    raw["actions"] |= {
        "a": {"kind": "tool.call", "tool": "server-a__Bash", "args": {"command": "eval {{state.x}}"}},
        "b": {"kind": "tool.call", "tool": "server-a__Bash", "args": {"command": {"$value": "state.x"}}},
        "c": {"kind": "tool.call", "tool": "server-a__Bash", "argss": {}},
    }
    problems = Problems()
    collect_problems(read_spec(raw, DEFAULT_LIMITS, problems), TOOLS, problems)
    with pytest.raises(BadInput) as refused:
        problems.raise_all("The spec")
    assert [entry["path"] for entry in problems_of(refused.value)] == [
        "actions.c.argss",
        "bindings.b",
        "actions.a.args.command",
        "actions.b.args.command",
        "refresh[0].action",
    ]


@rule("RS-45")
def test_author_is_warned_about_misspelt_names_of_the_state() -> None:
    raw = with_action(
        kind="tool.call",
        tool="server-a__Read",
        args={
            "path": "{{state.nam}}/{{state.saved}}",
            "more": {"$value": "state.fieldd"},
            "new": "{{state.zz}}",
        },
        saveAs="saved",
    )
    raw |= {"state": {"name": "x"}, "writable": ["field.a"]}
    raw["actions"]["say"] = {"kind": "session.send", "message": "Hello {{state.naem}}, {{input.nam}}"}
    warnings = [warning for warning in check_templates(parse_spec(raw), TOOLS) if "did you mean" in warning]
    assert warnings == [
        "actions.act.args.path: the state has no nam for {{state.nam}}; did you mean state.name?",
        'actions.act.args.more: the state has no fieldd for {"$value": "state.fieldd"}; '
        "did you mean state.field?",
        "actions.say.message: the state has no naem for {{state.naem}}; did you mean state.name?",
    ]


def test_command_without_placeholders_is_not_checked() -> None:
    check_templates(
        parse_spec(with_action(kind="tool.call", tool="server-a__Bash", args={"command": "eval $(( `x` <("})),
        TOOLS,
    )


@rule("RS-65")
def test_author_is_warned_about_a_program_that_may_run_its_arguments() -> None:
    spec = parse_spec(
        with_action(kind="tool.call", tool="server-a__Bash", args={"command": "frob {{state.x}}"})
    )
    assert any(
        warning.startswith("actions.act.args.command: the program `frob` is not known to take plain data")
        for warning in check_templates(spec, TOOLS)
    )


@rule("RS-45")
def test_author_is_warned_about_actions_that_will_fail() -> None:
    raw = example(toolPolicy={"allow": ["gone__Tool", "server-a__Read"]}, refresh=[])
    raw["actions"]["odd"] = {
        "kind": "tool.call",
        "tool": "gone__Tool",
        "args": {"a": ["{{state.x | upper}} {{state.x}}"]},
    }
    raw["actions"]["say"] = {"kind": "session.send", "message": "{{name}}"}
    assert check_templates(parse_spec(raw), TOOLS) == [
        "toolPolicy.allow: gone__Tool does not exist now, so actions that call it fail: node gone is not "
        "connected or no longer offers it.",
        "actions.deploy.tool: toolPolicy.allow does not list server-a__Bash, so it is refused.",
        "actions.refreshLogs.tool: toolPolicy.allow does not list server-a__Bash, so it is refused.",
        "actions.setDeploying.patch[0]: replace needs /status, which the spec's state does not have;"
        " use `add` to create it.",
        "actions.odd.args: {{state.x | upper}} is not a placeholder and is sent unchanged.",
        "actions.say.message: {{name}} is not a placeholder and is sent unchanged.",
    ]
    patch = [
        {"op": "add", "path": "/b", "value": {}},
        {"op": "replace", "path": "/b/c", "value": 1},
        {"op": "remove", "path": "/a"},
    ]
    quiet = {"state": {"a": 1}, "actions": {"p": {"kind": "state.patch", "patch": patch}}}
    assert check_templates(parse_spec(quiet), TOOLS) == []
