"""Secrets of actions by name: which executions may use them. RS-66"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.action.execution import ExecutionStatus
from easel.core.action.policy import check_templates
from easel.core.action.resolution import ResolvedCall
from easel.core.canvas.spec import parse_spec
from easel.core.canvas.unreviewed import unreviewed_after
from easel.core.principal import Principal, PrincipalKind
from easel.core.tool.context import UsedSecrets
from easel.core.tool.definition import ToolDefinition
from easel.core.values.references import SecretUse
from easel.errors import BadInput, ConfirmationClosed, Forbidden
from tests.core.action.examples import ANN, RULES, approve, canvas, start
from tests.core.canvas.specs import TOOLS
from tests.requirements import rule

if TYPE_CHECKING:
    from easel.core.canvas.canvas import CanvasSnapshot

BASH, READ = "server-a__Bash", "server-a__Read"
WITH_SECRETS = ToolDefinition(
    BASH,
    "Runs a command.",
    {**TOOLS[BASH].schema, "x-secrets": True},
    destructive=TOOLS[BASH].destructive,
)
RULES_WITH_SECRETS = replace(RULES, definitions={**TOOLS, BASH: WITH_SECRETS})
ARGUMENT = {"kind": "tool.call", "tool": READ, "args": {"path": {"$secret": "KEY"}}}
VARIABLE = {"kind": "tool.call", "tool": BASH, "args": {"command": "env"}, "secrets": ["KEY"]}


def with_secrets(*names: str, accepted: bool = True, **actions: Any) -> CanvasSnapshot:
    policy = {"allow": [BASH, READ], "secrets": [*names]}
    return canvas(actions=actions, toolPolicy=policy, refresh=..., bindings=..., accepted=accepted)


@rule("RS-66")
def test_resolved_call_has_names_only() -> None:
    started = start(with_secrets("KEY", act=ARGUMENT), "act")
    assert isinstance(started.work, ResolvedCall)
    assert started.work.args == {"path": "KEY"}
    assert started.work.secrets == (SecretUse(("path",), "KEY"),)
    variable = start(with_secrets("KEY", act={**VARIABLE, "confirm": "never"}), "act", RULES_WITH_SECRETS)
    assert isinstance(variable.work, ResolvedCall)
    assert (variable.work.env, variable.work.args) == (("KEY",), {"command": "env"})


@rule("RS-66", "RS-59")
@pytest.mark.parametrize("action", [ARGUMENT, {**ARGUMENT, "confirm": "always"}, VARIABLE])
@pytest.mark.parametrize("is_attended", [True, False])
def test_action_with_a_secret_is_refused_and_not_asked_until_a_person_accepts(
    action: dict[str, Any], is_attended: bool
) -> None:
    snapshot = with_secrets("KEY", accepted=False, act=action)
    with pytest.raises(Forbidden, match="uses your secret KEY, and no person has accepted"):
        start(snapshot, "act", RULES_WITH_SECRETS, is_attended=is_attended)


@rule("RS-66", "RS-68")
def test_action_with_a_secret_is_refused_when_a_tool_weakened() -> None:
    snapshot = with_secrets("KEY", act=ARGUMENT)
    hints = {READ: {"readOnly": False, "idempotent": False, "destructive": False, "shell": []}}
    weakened = replace(snapshot, canvas=replace(snapshot.canvas, tool_hints=hints))
    with pytest.raises(Forbidden, match="now declares that it is read-only"):
        start(weakened, "act")


@rule("RS-66", "RS-64")
def test_confirmation_shows_names_and_the_approved_call_uses_the_same_secrets() -> None:
    snapshot = with_secrets("KEY", "OTHER", act={**VARIABLE, "confirm": "always"})
    asked = start(snapshot, "act", RULES_WITH_SECRETS)
    assert asked.execution.status is ExecutionStatus.ASKED
    assert asked.confirmation is not None
    assert asked.confirmation["env"] == ["KEY"]
    approved = approve(snapshot, asked.execution, RULES_WITH_SECRETS)
    assert approved.work == asked.work
    other = with_secrets("KEY", "OTHER", act={**VARIABLE, "confirm": "always", "secrets": ["OTHER"]})
    with pytest.raises(ConfirmationClosed):
        approve(other, asked.execution, RULES_WITH_SECRETS)
    no_longer_accepted = with_secrets("KEY", accepted=False, act={**VARIABLE, "confirm": "always"})
    with pytest.raises(Forbidden, match="no person has accepted"):
        approve(no_longer_accepted, asked.execution, RULES_WITH_SECRETS)


@rule("RS-66")
def test_secret_that_the_spec_no_longer_lists_is_refused_at_the_approval() -> None:
    asked = start(with_secrets("KEY", act={**ARGUMENT, "confirm": "always"}), "act")
    plain = {**ARGUMENT, "confirm": "always", "args": {"path": "x"}}
    with pytest.raises(Forbidden, match=r"toolPolicy\.secrets of the canvas does not list KEY"):
        approve(with_secrets(act=plain), asked.execution)


@rule("RS-66")
def test_undeclared_secrets_are_all_named_and_only_calls_of_tools_take_them() -> None:
    undeclared = with_secrets("OTHER", a=ARGUMENT, b=VARIABLE).canvas.spec
    with pytest.raises(BadInput) as problem:
        parse_spec(undeclared)
    assert "actions.a: uses the secret KEY" in problem.value.message
    assert "actions.b: uses the secret KEY" in problem.value.message
    patch = {"kind": "state.patch", "patch": [{"op": "add", "path": "/x", "value": {"$secret": "KEY"}}]}
    with pytest.raises(BadInput, match="must not be in a state"):
        parse_spec(with_secrets("KEY", a=patch).canvas.spec)
    send = {"kind": "session.send", "message": "hello", "secrets": ["KEY"]}
    with pytest.raises(BadInput, match="is unknown"):
        parse_spec(with_secrets("KEY", a=send).canvas.spec)


@rule("RS-66")
def test_used_secrets_are_stored_and_read_back() -> None:
    used = UsedSecrets((SecretUse(("a", 0, "b.c"), "KEY"),), ("OTHER",))
    assert UsedSecrets.from_stored(used.to_stored()) == used
    assert used.names == {"KEY", "OTHER"}
    assert UsedSecrets().to_stored() == {}


@rule("RS-66")
@pytest.mark.parametrize("tool", ["gsv__Canvas", "whiteboard_write"])
def test_secret_for_a_tool_that_stores_what_it_gets_is_refused(tool: str) -> None:
    """Such a tool would write the value into a state, a board or a document."""
    definition = ToolDefinition(tool, "Stores its arguments.", {"type": "object"})
    action = {"kind": "tool.call", "tool": tool, "args": {"state": {"key": {"$secret": "KEY"}}}}
    policy = {"allow": [tool], "secrets": ["KEY"]}
    snapshot = canvas(actions={"act": action}, toolPolicy=policy, refresh=..., bindings=...)
    rules = replace(RULES, definitions={tool: definition})
    started = start(snapshot, "act", rules)
    assert started.execution.status is ExecutionStatus.FAILED
    assert "Easel's own tools store what they get" in str(started.problem)
    with pytest.raises(BadInput, match="Easel's own tools store what they get"):
        check_templates(parse_spec(snapshot.canvas.spec), {tool: definition})


# --- whose values stand beside a secret -----------------------------------------------------------


def written_by(snapshot: CanvasSnapshot, **authors: str) -> CanvasSnapshot:
    unreviewed = {f"/{path.replace('__', '/')}": author for path, author in authors.items()}
    return replace(snapshot, canvas=replace(snapshot.canvas, unreviewed=unreviewed))


BY_AGENT = "agent main"
ROBOT = Principal(ANN.account_id, "ci", kind=PrincipalKind.SERVICE)
TEXT = {"command": "jq '.[] | select(.id == \"{{state.text}}\")' all.json {{input.x}}"}
VALUE = {"path": {"$secret": "KEY"}, "lines": {"$value": "state.map"}}


@rule("RS-73")
@pytest.mark.parametrize("confirm", ["never", "auto"])
@pytest.mark.parametrize(
    "action, authors, named",
    [
        ({**VARIABLE, "args": TEXT}, {"text": BY_AGENT}, "state.text was written by agent main"),
        ({**ARGUMENT, "args": VALUE}, {"map__a": BY_AGENT}, "state.map was written by agent main"),
        ({**ARGUMENT, "args": VALUE}, {"map": "the result of x"}, "state.map was written by the result of x"),
    ],
    ids=["in a text", "as a part of a value", "by a tool"],
)
def test_call_with_a_secret_asks_if_no_person_wrote_a_value_of_it(
    confirm: str, action: dict[str, Any], authors: dict[str, str], named: str
) -> None:
    snapshot = with_secrets("KEY", act={**action, "confirm": confirm})
    quiet = start(written_by(snapshot, version=BY_AGENT), "act", RULES_WITH_SECRETS, input={"x": "y"})
    asked = start(written_by(snapshot, **authors), "act", RULES_WITH_SECRETS, input={"x": "y"})
    if confirm == "never" or action["tool"] == READ:
        assert quiet.execution.status is ExecutionStatus.RUNNING
    assert asked.execution.status is ExecutionStatus.ASKED
    assert asked.confirmation is not None
    assert asked.confirmation["because"] == (
        f"It uses secrets, and since a person accepted this canvas {named}."
    )
    assert approve(snapshot, asked.execution, RULES_WITH_SECRETS).work == asked.work


@rule("RS-73")
def test_input_of_a_person_does_not_make_a_call_ask_and_that_of_a_program_does() -> None:
    snapshot = with_secrets("KEY", act={**VARIABLE, "args": TEXT, "confirm": "never"})
    pressed = start(snapshot, "act", RULES_WITH_SECRETS, input={"x": "y"})
    assert pressed.execution.status is ExecutionStatus.RUNNING
    by_program = start(snapshot, "act", RULES_WITH_SECRETS, input={"x": "y"}, principal=ROBOT)
    assert by_program.confirmation is not None
    assert "input.x was written by service ci" in by_program.confirmation["because"]


@rule("RS-73")
def test_call_without_a_secret_does_not_ask() -> None:
    action = {"kind": "tool.call", "tool": READ, "args": {"path": "{{state.text}}"}, "confirm": "never"}
    started = start(written_by(with_secrets("KEY", act=action), text=BY_AGENT), "act")
    assert started.execution.status is ExecutionStatus.RUNNING


@rule("RS-73", "RS-59")
def test_refresh_that_would_need_to_ask_does_not_run_and_says_why() -> None:
    action = {**ARGUMENT, "args": VALUE, "confirm": "never"}
    snapshot = written_by(with_secrets("KEY", act=action), map=BY_AGENT)
    with pytest.raises(Forbidden, match=r"refresh cannot run it. It uses secrets.*state.map was written by"):
        start(snapshot, "act", is_attended=False)


@rule("RS-73")
def test_patch_that_copies_a_value_keeps_its_author_and_a_literal_is_of_the_spec() -> None:
    copy = {"op": "replace", "path": "/text", "value": {"$value": "state.service"}}
    literal = {"op": "replace", "path": "/version", "value": "1"}
    typed = {"op": "replace", "path": "/map", "value": {"a": {"$value": "input.a"}}}
    snapshot = with_secrets(act={"kind": "state.patch", "patch": [copy, literal, typed]})
    snapshot = written_by(snapshot, service=BY_AGENT, version=BY_AGENT)
    pressed = start(snapshot, "act", input={"a": "x"})
    assert pressed.authors == {"/text": BY_AGENT}
    by_program = start(snapshot, "act", input={"a": "x"}, principal=ROBOT)
    assert by_program.authors == {"/text": BY_AGENT, "/map": "service ci"}


@rule("RS-73")
def test_copy_to_an_escaped_name_is_remembered_under_the_name_that_a_placeholder_has() -> None:
    copy = {"op": "add", "path": "/~0redacted", "value": {"$value": "state.service"}}
    snapshot = with_secrets("KEY", act={"kind": "state.patch", "patch": [copy]})
    change = start(written_by(snapshot, service=BY_AGENT), "act")
    assert change.state is not None
    assert unreviewed_after(snapshot.canvas, change, ANN) == {"/redacted": BY_AGENT}
