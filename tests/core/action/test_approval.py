"""Approval by another person than the one who asked, at the start of an execution and at its approval."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from easel.core.action.approval import UnknownApprovers
from easel.core.action.ending import WITHDRAWN, reject_execution
from easel.core.action.execution import ExecutionStatus, PendingLimit, actor_of
from easel.core.action.policy import check_invocation
from easel.core.canvas.actions import Approval, Confirm
from easel.core.canvas.consent import consent_to
from easel.core.principal import PrincipalKind, Role, as_program
from easel.errors import ActionFailed, BadInput, Forbidden
from easel.ids import AccountId
from tests.core.action.examples import ACTS, NOW, READS, RULES, canvas_with_actions, events
from tests.core.action.examples import approve as approve_as_ann
from tests.core.action.examples import start as start_as_ann
from tests.core.canvas.specs import TOOLS
from tests.requirements import rule
from tests.support.actions import parse_action
from tests.support.principals import person

if TYPE_CHECKING:
    from easel.core.action.transitions import Rules, StartedExecution
    from easel.core.canvas.canvas import CanvasSnapshot
    from easel.core.principal import Principal

TEAM = AccountId("team")
ANN, BOB = (replace(person(name, name.title()), account_id=TEAM, role=Role.MEMBER) for name in ("ann", "bob"))
LIMIT = PendingLimit(20, 900.0)
TEAM_RULES = replace(RULES, has_other_approver=True, pending_limit=LIMIT, approval_seconds=86_400.0)
BY_ANOTHER = {**READS, "approval": "another"}
SEND = {"kind": "session.send", "message": "Hello", "approval": "another"}
PATCH = {"kind": "state.patch", "patch": [], "confirm": "always", "approval": "another"}


def start(
    snapshot: CanvasSnapshot, action_id: str, principal: Principal, rules: Rules = TEAM_RULES, **options: Any
) -> StartedExecution:
    actor = actor_of(principal, "laptop", "client")
    return start_as_ann(snapshot, action_id, rules, principal=principal, actor=actor, **options)


def approve(
    snapshot: CanvasSnapshot, asked: StartedExecution, principal: Principal, rules: Rules = TEAM_RULES
) -> StartedExecution:
    return approve_as_ann(snapshot, asked.execution, rules, principal=principal)


@rule("RS-77")
@pytest.mark.parametrize("action", [BY_ANOTHER, SEND, {**ACTS, "approval": "another"}])
def test_asker_cannot_approve_and_another_person_can(action: dict[str, Any]):
    snapshot = canvas_with_actions(go=action)
    asked = start(snapshot, "go", ANN, input={"to": "prod"})
    assert asked.execution.status is ExecutionStatus.ASKED, "it asks, whatever its tool says of itself"
    assert asked.confirmation is not None
    assert (asked.confirmation["approval"], asked.confirmation["askedBy"]) == ("another", "ann")
    with pytest.raises(Forbidden, match="another person must approve"):
        approve(snapshot, asked, ANN)
    assert approve(snapshot, asked, BOB).execution.status is ExecutionStatus.RUNNING


@rule("RS-77")
@pytest.mark.parametrize("action", [BY_ANOTHER, SEND, PATCH], ids=["tool", "message", "state"])
def test_page_without_a_gesture_cannot_ask_in_the_name_of_its_viewer(action: dict[str, Any]):
    """Else the author of the page approves what it asks for as soon as another member opens it."""
    with pytest.raises(Forbidden, match="gesture|click"):
        start(canvas_with_actions(go=action), "go", BOB, has_gesture=False)
    raised = replace(TEAM_RULES, approval_by=Approval.ANOTHER)
    with pytest.raises(Forbidden, match="press it yourself"):
        start(canvas_with_actions(go=ACTS), "go", BOB, raised, input={"to": "prod"}, has_gesture=False)
    asked = start(canvas_with_actions(go=ACTS), "go", BOB, input={"to": "prod"}, has_gesture=False)
    assert asked.execution.status is ExecutionStatus.ASKED, "the viewer answers this one"


@rule("RS-77")
def test_setting_of_the_team_holds_for_an_action_that_says_never():
    """One member writes, and thereby accepts, `confirm: never`; `tool.invoke` refuses such a call too."""
    raised = replace(TEAM_RULES, approval_by=Approval.ANOTHER)
    snapshot = canvas_with_actions(go={**ACTS, "confirm": "never"})
    asked = start(snapshot, "go", ANN, raised, input={"to": "prod"})
    assert asked.execution.status is ExecutionStatus.ASKED
    with pytest.raises(Forbidden):
        approve(snapshot, asked, ANN, raised)
    with pytest.raises(Forbidden, match="a refresh cannot run it"):
        start(snapshot, "go", ANN, raised, input={"to": "prod"}, is_attended=False)
    own = start(snapshot, "go", person("ann", "Ann"), raised, input={"to": "prod"})
    assert own.execution.status is ExecutionStatus.RUNNING, "nothing changes in one's own account"


@rule("RS-77", "RS-76")
@pytest.mark.parametrize("kind", [PrincipalKind.SERVICE, PrincipalKind.AGENT])
def test_program_asks_for_the_person_who_answers_for_it(kind: PrincipalKind):
    snapshot = canvas_with_actions(go=BY_ANOTHER)
    asked = start(snapshot, "go", as_program(ANN, kind, "helper"))
    assert asked.execution.actor["onBehalfOf"] == "ann"
    assert asked.confirmation is not None
    assert asked.confirmation["askedBy"] == "ann"
    with pytest.raises(Forbidden, match="another person must approve"):
        approve(snapshot, asked, ANN)
    approve(snapshot, asked, BOB)


@rule("RS-77")
def test_token_of_the_asker_cannot_approve_either():
    snapshot = canvas_with_actions(go=BY_ANOTHER)
    asked = start(snapshot, "go", ANN)
    with pytest.raises(Forbidden):
        approve(snapshot, asked, as_program(ANN, PrincipalKind.SERVICE, "helper"))


@rule("RS-77")
def test_question_stays_one_for_another_person_after_spec_and_setting_dropped_that():
    asked = start(canvas_with_actions(go=BY_ANOTHER), "go", ANN)
    with pytest.raises(Forbidden):
        approve(canvas_with_actions(go=READS), asked, ANN)


@rule("RS-77")
def test_action_that_needs_another_since_the_question_is_not_approved_by_its_asker():
    asked = start(canvas_with_actions(go=ACTS), "go", ANN, input={"to": "prod"})
    with pytest.raises(Forbidden):
        approve(canvas_with_actions(go={**ACTS, "approval": "another"}), asked, ANN)
    with pytest.raises(Forbidden):
        approve(canvas_with_actions(go=ACTS), asked, ANN, replace(TEAM_RULES, approval_by=Approval.ANOTHER))


@rule("RS-77")
def test_setting_of_the_team_raises_it_for_calls_that_need_consent_and_for_no_other():
    raised = replace(TEAM_RULES, approval_by=Approval.ANOTHER)
    snapshot = canvas_with_actions(go=ACTS, read=READS, never={**READS, "confirm": "never"})
    asked = start(snapshot, "go", ANN, raised, input={"to": "prod"})
    with pytest.raises(Forbidden):
        approve(snapshot, asked, ANN, TEAM_RULES)
    for other in ("read", "never"):
        assert (
            start(snapshot, other, ANN, raised, input={"to": "x"}).execution.status is ExecutionStatus.RUNNING
        )


@rule("RS-77")
def test_setting_does_not_lower_what_the_action_says():
    snapshot = canvas_with_actions(go=BY_ANOTHER)
    asked = start(snapshot, "go", ANN, replace(TEAM_RULES, approval_by=Approval.ANYONE))
    with pytest.raises(Forbidden):
        approve(snapshot, asked, ANN, replace(TEAM_RULES, approval_by=Approval.ANYONE))


@rule("RS-77")
def test_setting_has_no_effect_in_ones_own_account():
    own = person("ann", "Ann")
    rules = replace(TEAM_RULES, approval_by=Approval.ANOTHER, has_other_approver=None)
    snapshot = canvas_with_actions(go=ACTS)
    asked = start(snapshot, "go", own, rules, input={"to": "prod"})
    assert asked.confirmation is not None
    assert "approval" not in asked.confirmation
    assert approve(snapshot, asked, own, rules).execution.status is ExecutionStatus.RUNNING


@rule("RS-77")
def test_action_fails_at_once_without_another_approver():
    snapshot = canvas_with_actions(go=BY_ANOTHER)
    failed = start(snapshot, "go", ANN, replace(TEAM_RULES, has_other_approver=False))
    assert failed.execution.status is ExecutionStatus.FAILED
    assert isinstance(failed.problem, ActionFailed)
    assert "no other member" in failed.problem.message


@rule("RS-77")
def test_members_are_read_only_for_a_question_of_another_person():
    unknown = replace(TEAM_RULES, has_other_approver=None)
    snapshot = canvas_with_actions(go=BY_ANOTHER, other=ACTS)
    with pytest.raises(UnknownApprovers):
        start(snapshot, "go", ANN, unknown)
    assert start(snapshot, "other", ANN, unknown, input={"to": "x"}).execution.status is ExecutionStatus.ASKED


@rule("RS-77")
def test_question_of_another_person_lives_longer():
    snapshot = canvas_with_actions(go=BY_ANOTHER, other=ACTS)
    by_another, by_anyone = start(snapshot, "go", ANN), start(snapshot, "other", ANN, input={"to": "x"})
    assert by_another.transition.pending_limit == PendingLimit(20, 86_400.0)
    assert by_anyone.transition.pending_limit == LIMIT


@rule("RS-77", "RS-45")
def test_refresh_cannot_run_an_action_that_another_person_must_approve():
    with pytest.raises(Forbidden):
        start(canvas_with_actions(go=BY_ANOTHER), "go", ANN, is_attended=False)


@rule("RS-77")
def test_unaccepted_spec_cannot_take_back_that_another_person_must_approve():
    accepted = canvas_with_actions(go=BY_ANOTHER)
    unaccepted = canvas_with_actions(go={**READS, "confirm": "never"})
    unaccepted = replace(
        unaccepted,
        canvas=replace(
            unaccepted.canvas, is_accepted=False, consent_json=consent_to(accepted.canvas.spec).to_text()
        ),
    )
    asked = start(unaccepted, "go", ANN)
    assert asked.execution.status is ExecutionStatus.ASKED
    with pytest.raises(Forbidden):
        approve(unaccepted, asked, ANN)


@rule("RS-77")
def test_withdrawn_question_says_so():
    snapshot = canvas_with_actions(go=BY_ANOTHER)
    asked = start(snapshot, "go", ANN)
    for principal, expected in ((ANN, WITHDRAWN), (BOB, None)):
        refused = reject_execution(asked.execution, principal, owner_id="ins_1", now_ms=NOW)(snapshot)
        [(event_type, payload)] = events(refused)
        assert (event_type, payload.get("reason")) == ("canvas.action.refused", expected)


@rule("RS-77", "RS-67")
def test_direct_call_is_no_way_around_the_setting_of_the_team():
    bash, read = TOOLS["server-a__Bash"], TOOLS["server-a__Read"]
    with pytest.raises(Forbidden, match="another person"):
        check_invocation(bash, {}, floor=Confirm.NEVER, approval_by=Approval.ANOTHER)
    check_invocation(read, {}, floor=Confirm.NEVER, approval_by=Approval.ANOTHER)
    check_invocation(bash, {}, floor=Confirm.NEVER, approval_by=Approval.ANYONE)


@rule("RS-77", "RS-64")
def test_approval_and_who_asked_are_part_of_the_digest():
    snapshot = canvas_with_actions(go=BY_ANOTHER, other=READS)
    asked = start(snapshot, "go", ANN).confirmation
    assert asked is not None
    digests = {
        start(snapshot, "go", principal, salt="s").confirmation["digest"]  # type: ignore[index]
        for principal in (ANN, BOB)
    }
    assert len(digests) == 2


@rule("RS-77")
@pytest.mark.parametrize(
    "action, problem",
    [
        ({**ACTS, "confirm": "never", "approval": "another"}, "nobody is asked"),
        ({**SEND, "confirm": "never"}, "nobody is asked"),
        ({"kind": "state.patch", "patch": [], "approval": "another"}, "confirm: always"),
        ({"kind": "state.patch", "patch": [], "confirm": "never", "approval": "another"}, "nobody is asked"),
        ({**ACTS, "approval": "admin"}, "approval"),
        ({**ACTS, "approval": True}, "approval"),
    ],
)
def test_approval_of_an_action_that_never_asks_is_refused(action: dict[str, Any], problem: str):
    with pytest.raises(BadInput, match=problem):
        parse_action("go", action)


@rule("RS-77")
def test_change_of_the_state_that_always_asks_may_need_another():
    action = {"kind": "state.patch", "patch": [], "confirm": "always", "approval": "another"}
    assert parse_action("go", action).approval is Approval.ANOTHER
    assert msgspec.json.encode(parse_action("go", {**ACTS, "approval": "anyone"}).approval) == b'"anyone"'
