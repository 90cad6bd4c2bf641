"""Changes of a spec that one member may not accept alone: less approval, and secrets. RS-77, RS-66"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from easel.core.canvas.canvas import Canvas, CanvasSnapshot, Change
from easel.core.canvas.consent import NO_CONSENT, Consent, consent_after, consent_to, why_not_alone
from easel.core.canvas.content import ContentWrite, change_content
from easel.core.principal import Principal, PrincipalKind, Role, as_program
from easel.errors import Forbidden
from easel.ids import AccountId, CanvasId
from tests.requirements import rule
from tests.support.principals import person

TEAM = AccountId("team")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
DEPLOY = {"kind": "tool.call", "tool": "n__Bash", "args": {"command": "deploy"}, "approval": "another"}
GUARDED: dict[str, Any] = {"toolPolicy": {"allow": ["n__Bash"]}, "actions": {"deploy": DEPLOY}}
WITHOUT_APPROVAL = {name: part for name, part in DEPLOY.items() if name != "approval"}


def member(name: str, role: Role = Role.MEMBER) -> Principal:
    return replace(person(name, name), account_id=TEAM, role=role)


ANN, BOB, ADA = member("ann"), member("bob"), member("ada", Role.ADMIN)


def agent_of(principal: Principal) -> Principal:
    return as_program(principal, PrincipalKind.AGENT, "main")


def with_deploy(**members: Any) -> dict[str, Any]:
    return {**GUARDED, "actions": {"deploy": {**DEPLOY, **members}}}


def canvas_of(spec: dict[str, Any], *, accepted: bool = True) -> CanvasSnapshot:
    canvas = Canvas(
        account_id=TEAM,
        canvas_id=CanvasId("c"),
        agent_id="main",
        title="Title",
        owner_session_key=None,
        spec_json=msgspec.json.encode(spec).decode(),
        state={},
        revision=1,
        last_seq=1,
        spec_revision=1,
        is_accepted=accepted,
        created_at=NOW,
        updated_at=NOW,
        consent_json=(consent_to(spec) if accepted else NO_CONSENT).to_text(),
    )
    return CanvasSnapshot(canvas)


def write(snapshot: CanvasSnapshot, principal: Principal, spec: dict[str, Any]) -> CanvasSnapshot:
    """Return the canvas after a write of its spec, as the transaction stores it."""
    change, _ = change_content(principal, snapshot, ContentWrite(spec=spec))
    return store(snapshot, principal, change)


def store(snapshot: CanvasSnapshot, principal: Principal, change: Change) -> CanvasSnapshot:
    canvas = snapshot.canvas
    return CanvasSnapshot(
        replace(
            canvas,
            spec_json=canvas.spec_json if change.spec is None else msgspec.json.encode(change.spec).decode(),
            is_accepted=canvas.is_accepted if change.is_accepted is None else change.is_accepted,
            consent_json=consent_after(canvas, change, principal).to_text(),
        )
    )


def may_accept_now(snapshot: CanvasSnapshot, principal: Principal) -> bool:
    return why_not_alone(snapshot.canvas, snapshot.canvas.spec, principal) is None


WIDER = {
    "drops the approval": {**GUARDED, "actions": {"deploy": WITHOUT_APPROVAL}},
    "lets anyone approve": with_deploy(approval="anyone"),
    "has no such action": {**GUARDED, "actions": {}},
    "runs another command": with_deploy(args={"command": "deploy --all"}),
    "has another time limit": with_deploy(timeoutMs=3_600_000),
    "reaches other hosts": {**GUARDED, "toolPolicy": {"allow": ["n__Bash"], "hosts": ["a.example"]}},
    "takes any text": {**GUARDED, "toolPolicy": {"allow": ["n__Bash"], "data": {"n__Bash": ["command"]}}},
}


@rule("RS-77")
@pytest.mark.parametrize("spec", WIDER.values(), ids=WIDER.keys())
@pytest.mark.parametrize("author", [ANN, agent_of(ANN)], ids=["a person", "an agent"])
def test_spec_that_drops_or_widens_a_guarded_action_needs_another_person(
    spec: dict[str, Any], author: Principal
):
    proposed = write(canvas_of(GUARDED), author, spec)
    assert not proposed.canvas.is_accepted, "a person's own write accepts, but not this one"
    assert (may_accept_now(proposed, ANN), may_accept_now(proposed, BOB)) == (False, True)


@rule("RS-77")
@pytest.mark.parametrize(
    "spec",
    [
        with_deploy(title="Deploy", description="Now"),
        {**GUARDED, "actions": {"deploy": DEPLOY, "other": WITHOUT_APPROVAL}},
        {**GUARDED, "toolPolicy": {"allow": ["n__Bash", "n__Read"]}, "title": "Cockpit"},
    ],
    ids=["other words", "another action", "another tool"],
)
def test_spec_that_leaves_guarded_actions_alone_is_accepted_by_its_author(spec: dict[str, Any]):
    assert write(canvas_of(GUARDED), ANN, spec).canvas.is_accepted


@rule("RS-77")
def test_write_that_wants_to_be_accepted_is_refused_with_the_reason():
    with pytest.raises(Forbidden, match="another member must accept"):
        change_content(ANN, canvas_of(GUARDED), ContentWrite(spec=with_deploy(args={}), is_accepted=True))


@rule("RS-77")
def test_admin_is_another_person_too_but_not_of_their_own_change():
    proposed = write(canvas_of(GUARDED), ADA, with_deploy(args={}))
    assert (may_accept_now(proposed, ADA), may_accept_now(proposed, ANN)) == (False, True)


@rule("RS-77")
def test_change_in_two_steps_is_compared_with_what_was_accepted():
    """First without the action, then with it again but without the approval."""
    gone = write(canvas_of(GUARDED), ANN, {**GUARDED, "actions": {}})
    back = write(gone, ANN, {**GUARDED, "actions": {"deploy": WITHOUT_APPROVAL}})
    for step in (gone, back):
        assert not step.canvas.is_accepted
        assert not may_accept_now(step, ANN)
    undone = write(back, ANN, GUARDED)
    assert undone.canvas.is_accepted, "the accepted spec itself needs nobody"


@rule("RS-77")
def test_edit_by_another_person_does_not_make_the_change_theirs():
    proposed = write(canvas_of(GUARDED), ANN, with_deploy(args={}))
    edited = write(proposed, agent_of(BOB), {**with_deploy(args={}), "title": "New"})
    assert edited.canvas.consent.proposed_by == {"ann"}
    assert (may_accept_now(edited, ANN), may_accept_now(edited, BOB)) == (False, True)


@rule("RS-77")
def test_another_change_of_the_action_is_that_of_both_who_made_one():
    proposed = write(canvas_of(GUARDED), agent_of(ANN), with_deploy(args={}))
    changed = write(proposed, agent_of(BOB), with_deploy(args={"command": "other"}))
    assert (may_accept_now(changed, ANN), may_accept_now(changed, BOB)) == (False, False)
    assert may_accept_now(changed, ADA)


@rule("RS-77")
@pytest.mark.parametrize(
    "edit",
    [
        {"toolPolicy": {"allow": ["n__Bash", "n__Read"]}},
        {"actions": {"deploy": {**WITHOUT_APPROVAL, "title": "Deploy now"}, "wipe": DEPLOY}},
        {"actions": {"deploy": WITHOUT_APPROVAL, "wipe": {**DEPLOY, "timeoutMs": 5_000}}},
    ],
    ids=["another tool", "a title", "another guarded action"],
)
def test_edit_of_something_else_by_another_person_lets_no_one_accept_their_own_change(edit: dict[str, Any]):
    both = {**GUARDED, "actions": {"deploy": DEPLOY, "wipe": DEPLOY}}
    dropped = {**both, "actions": {"deploy": WITHOUT_APPROVAL, "wipe": DEPLOY}}
    proposed = write(canvas_of(both), ANN, dropped)
    edited = write(proposed, agent_of(BOB), {**dropped, **edit})
    assert not may_accept_now(edited, ANN), "she dropped the approval of `deploy`"
    assert may_accept_now(edited, ADA)


@rule("RS-77")
def test_later_specs_are_compared_with_the_accepted_one():
    proposed = write(canvas_of(GUARDED), ANN, with_deploy(args={}))
    accepted = store(proposed, BOB, Change(events=[], is_accepted=True))
    assert accepted.canvas.consent == consent_to(with_deploy(args={}))
    assert not write(accepted, ANN, GUARDED).canvas.is_accepted, "its former arguments are a change now"


@rule("RS-77", "RS-66")
@pytest.mark.parametrize("role, is_accepted", [(Role.MEMBER, False), (Role.ADMIN, True)])
def test_only_an_admin_accepts_a_spec_that_names_a_secret_for_the_first_time(role: Role, is_accepted: bool):
    with_secret = {"toolPolicy": {"allow": ["n__Bash"], "secrets": ["TOKEN"]}}
    written = write(canvas_of({}), member("ann", role), with_secret)
    assert written.canvas.is_accepted is is_accepted
    of_agent = write(canvas_of({}), agent_of(ADA), with_secret)
    assert may_accept_now(of_agent, member("bob", role)) is is_accepted


@rule("RS-77", "RS-66")
def test_member_accepts_a_spec_with_the_secrets_of_the_accepted_one():
    one, two = ({"toolPolicy": {"secrets": names}, "title": "New"} for names in (["ONE"], ["ONE", "TWO"]))
    before = canvas_of({"toolPolicy": {"secrets": ["ONE"]}})
    assert write(before, ANN, one).canvas.is_accepted
    added = write(before, ANN, two)
    assert not added.canvas.is_accepted
    assert why_not_alone(added.canvas, added.canvas.spec, ANN) == (
        "it names the secret TWO for the first time, which only an admin of the account may accept."
    )
    assert not may_accept_now(write(added, agent_of(ANN), two), ANN), (
        "not what was proposed: what was accepted"
    )


@rule("RS-77", "RS-66")
def test_only_an_admin_lets_an_action_send_a_secret_in_a_new_way():
    fetch = {"kind": "tool.call", "tool": "local__Fetch", "args": {"bearer": {"$secret": "ONE"}}}
    policy = {"secrets": ["ONE"], "hosts": ["api.example.com"]}
    spec = {"toolPolicy": policy, "actions": {"get": fetch}}
    before = canvas_of(spec)
    for changed in (
        {**spec, "toolPolicy": {**policy, "hosts": ["evil.example"]}},
        {**spec, "actions": {"get": {**fetch, "tool": "local__Bash"}}},
        {**spec, "actions": {"get": fetch, "too": fetch}},
    ):
        assert not write(before, ANN, changed).canvas.is_accepted
        assert write(before, member("root", Role.ADMIN), changed).canvas.is_accepted
    for same in (
        {**spec, "actions": {"get": {**fetch, "title": "Get"}, "set": {"kind": "state.patch", "patch": []}}},
        {"toolPolicy": {**policy, "allow": ["gsv__Echo"]}, "actions": {}},
    ):
        assert write(before, ANN, same).canvas.is_accepted


def test_consent_is_stored_and_read_back():
    proposed = Consent({"a": "1"}, frozenset({"B", "A"}), proposed_by=frozenset({"bob", "ann"}))
    for consent in (NO_CONSENT, consent_to(GUARDED), proposed):
        assert Consent.from_json(msgspec.json.decode(consent.to_text())) == consent
