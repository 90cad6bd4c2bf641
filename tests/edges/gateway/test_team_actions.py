"""Two people on one canvas of a team: approval, acceptance and deletion, on both stores. RS-76, RS-77"""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.action.execution import ExecutionStatus
from easel.core.audit.record import EASEL, parse_record
from easel.core.principal import Principal, PrincipalKind, Role, as_program, host_for
from easel.errors import ActionFailed, BadInput, ConfirmationClosed, Forbidden
from easel.host.actions.request import ActionRequest
from easel.host.canvases.drafts import Draft
from easel.ids import AccountId
from tests.edges.gateway.action_fixtures import ControlledTools, audit_records, call_tool, make_spec
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import rule
from tests.support.principals import THE_OWNER, person
from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from easel.core.canvas.canvas import CanvasSnapshot
    from easel.host.actions.request import ActionResult


class Team:
    """A team on a running Easel, and what its members do there."""

    def __init__(self, easel: LiveEasel, **roles: Role) -> None:
        self.easel = easel
        suffix = secrets.token_hex(4)
        self.id = AccountId(f"team-{suffix}")
        users = {name: f"{name}-{suffix}" for name in roles}
        for user in users.values():
            easel.add_person(user)
        easel.add_team(self.id, **{users[name]: role.value for name, role in roles.items()})
        self.members: dict[str, Principal] = {
            name: replace(person(users[name], name), account_id=self.id, role=role)
            for name, role in roles.items()
        }

    def __getitem__(self, name: str) -> Principal:
        return self.members[name]

    @property
    def services(self) -> Any:
        return self.easel.instances[0].services

    def create(self, by: Principal, spec: dict[str, Any], **options: Any) -> CanvasSnapshot:
        draft = Draft(canvas_id=new_session(), spec=spec, **options)
        return self.easel.do(self.services.canvases.create(by, draft))

    def upsert(self, by: Principal, canvas_id: str, spec: dict[str, Any], **options: Any) -> CanvasSnapshot:
        draft = Draft(canvas_id=canvas_id, spec=spec, **options)
        return self.easel.do(self.services.canvases.upsert(by, draft))

    def accept(self, by: Principal, canvas: CanvasSnapshot) -> CanvasSnapshot:
        accepting = self.services.canvases.accept(by, canvas.canvas.canvas_id, canvas.canvas.revision)
        return self.easel.do(accepting)

    def press(self, by: Principal, canvas_id: str, action_id: str = "go") -> ActionResult:
        request = ActionRequest(canvas_id=canvas_id, action_id=action_id, input={}, client_id="test")
        return self.easel.do(self.services.actions.execute(by, request))

    def answer(self, by: Principal, asked: ActionResult, *, approve: bool = True) -> ActionResult:
        return self.easel.do(self.services.actions.confirm(by, asked.event_id, approve=approve))


@pytest.fixture
def team(action_easel: LiveEasel) -> Team:
    return Team(action_easel, ann=Role.MEMBER, bob=Role.MEMBER, ada=Role.ADMIN, vera=Role.VIEWER)


def guarded(tools: ControlledTools, **members: Any) -> dict[str, Any]:
    return make_spec({"go": {**call_tool(tools.act, **members), "confirm": "always", "approval": "another"}})


@rule("RS-77", "CV-22")
def test_call_runs_when_another_person_approves_it(team: Team, tools: ControlledTools) -> None:
    canvas = team.create(team["ann"], guarded(tools, args={"n": 1})).canvas
    asked, count = team.press(team["ann"], canvas.canvas_id), len(tools.act.calls)
    assert asked.status is ExecutionStatus.ASKED
    assert (asked.resolved["approval"], asked.resolved["askedBy"]) == ("another", team["ann"].user_id)
    for own in (team["ann"], replace(team["ann"], name="her token", token_id="tok_1")):
        with pytest.raises(Forbidden, match="another person must approve"):
            team.answer(own, asked)
    for program in (PrincipalKind.SERVICE, PrincipalKind.AGENT):
        with pytest.raises(Forbidden):
            team.answer(as_program(team["bob"], program), asked)
    assert len(tools.act.calls) == count
    done = team.answer(team["bob"], asked)
    assert (done.status, done.result, len(tools.act.calls)) == (
        ExecutionStatus.COMPLETED,
        {"n": 1},
        count + 1,
    )
    [record] = team.easel.do(
        team.services.actions.list_records(team["vera"], canvas.canvas_id, before=None, limit=9)
    )
    assert (record.actor["userId"], record.confirmed_by) == (team["ann"].user_id, "bob")

    def is_recorded() -> bool:
        return bool(audit_records(team.easel, "guardrail.refused", asked.event_id))

    wait_for_sync(is_recorded, what="the audit record")


@rule("RS-77")
def test_service_of_a_person_asks_in_their_name(team: Team, tools: ControlledTools) -> None:
    canvas = team.create(team["bob"], guarded(tools)).canvas
    asked = team.press(as_program(team["ann"], PrincipalKind.SERVICE, "ci"), canvas.canvas_id)
    with pytest.raises(Forbidden):
        team.answer(team["ann"], asked)
    assert team.answer(team["bob"], asked).status is ExecutionStatus.COMPLETED


@rule("RS-77")
def test_asker_can_withdraw_the_question_and_its_end_says_so(team: Team, tools: ControlledTools) -> None:
    canvas = team.create(team["ann"], guarded(tools)).canvas
    asked = team.press(team["ann"], canvas.canvas_id)
    cancelled = team.services.actions.cancel(team["ann"], canvas.canvas_id, asked.event_id)
    assert team.easel.do(cancelled).status is ExecutionStatus.REFUSED
    with pytest.raises(ConfirmationClosed):
        team.answer(team["bob"], asked)
    [payload] = [
        json.loads(row["payload"])
        for row in team.easel.sql(
            "select cast(payload as text) as payload from canvas_events "
            f"where account_id = '{team.id}' and event_type = 'canvas.action.refused'"
        )
    ]
    assert (payload["reason"], payload["refusedBy"]) == ("Withdrawn by who asked for it.", "ann")


@rule("RS-77")
def test_question_for_another_person_lives_a_day_and_others_a_quarter_of_an_hour(
    team: Team, tools: ControlledTools
) -> None:
    canvas = team.create(
        team["ann"], make_spec({**guarded(tools)["actions"], "own": call_tool(tools.act, confirm="always")})
    ).canvas
    by_another, own = (team.press(team["ann"], canvas.canvas_id, name) for name in ("go", "own"))
    for asked, seconds in ((by_another, 86_400), (own, 900)):
        pending = team.easel.do(team.services.actions.confirmations.find(team["bob"], asked.event_id))
        assert seconds - 60 < pending.answer_seconds <= seconds


@rule("RS-77")
@pytest.mark.parametrize(
    "change",
    [
        "delete from team_members where account_id = '{team}' and user_id not like 'ann-%'",
        "update team_members set role = 'viewer' where account_id = '{team}' and user_id not like 'ann-%'",
        "update accounts set disabled_at = created_at where account_id in "
        "(select user_id from team_members where account_id = '{team}' and user_id not like 'ann-%')",
    ],
    ids=["nobody else", "only viewers", "only disabled persons"],
)
def test_call_fails_at_once_without_another_approver(team: Team, tools: ControlledTools, change: str) -> None:
    canvas = team.create(team["ann"], guarded(tools)).canvas
    team.easel.sql(change.format(team=team.id))
    with pytest.raises(ActionFailed, match="no other member"):
        team.press(team["ann"], canvas.canvas_id)
    assert (
        team.easel.do(team.services.actions.confirmations.list_pending(team["ann"], canvas.canvas_id)) == []
    )
    [record] = team.easel.do(
        team.services.actions.list_records(team["ann"], canvas.canvas_id, before=None, limit=9)
    )
    assert record.status is ExecutionStatus.FAILED


@rule("RS-77")
def test_setting_of_the_team_asks_another_person_for_every_call_that_needs_consent(
    team: Team, tools: ControlledTools
) -> None:
    actions = {"go": call_tool(tools.act, confirm="always"), "never": call_tool(tools.act, confirm="never")}
    canvas = team.create(team["ann"], make_spec(actions)).canvas
    team.easel.do(team.services.settings.change(team["ada"], {"approval_by": "another"}))
    asked = team.press(team["ann"], canvas.canvas_id)
    assert asked.resolved["approval"] == "another"
    with pytest.raises(Forbidden):
        team.answer(team["ann"], asked)
    never = team.press(team["ann"], canvas.canvas_id, "never")
    assert (never.status, never.resolved["approval"]) == (ExecutionStatus.ASKED, "another")
    with pytest.raises(Forbidden, match="another person must approve"):
        team.easel.do(team.services.invocations.invoke(team["ann"], tools.act.name, {}))
    team.easel.do(team.services.settings.change(team["ada"], {"approval_by": None}))
    with pytest.raises(Forbidden):
        team.answer(team["ann"], asked)
    assert team.answer(team["bob"], asked).status is ExecutionStatus.COMPLETED
    own = team.press(team["ann"], canvas.canvas_id)
    assert team.answer(team["ann"], own).status is ExecutionStatus.COMPLETED


@rule("RS-77")
def test_own_account_refuses_both_ways_to_ask_another_person(
    action_easel: LiveEasel, tools: ControlledTools
) -> None:
    services = action_easel.instances[0].services
    draft = Draft(canvas_id=new_session(), spec=guarded(tools))
    for principal in (
        THE_OWNER,
        as_program(THE_OWNER, PrincipalKind.AGENT),
        as_program(THE_OWNER, PrincipalKind.SERVICE),
    ):
        with pytest.raises(BadInput, match=r"actions\.go\.approval"):
            action_easel.do(services.canvases.create(principal, draft))
    with pytest.raises(BadInput, match="approval_by"):
        action_easel.do(services.settings.change(THE_OWNER, {"approval_by": "another"}))
    action_easel.do(services.settings.change(THE_OWNER, {"approval_by": "anyone"}))


@rule("RS-77", "RS-59")
def test_spec_that_drops_the_approval_is_accepted_by_another_person_only(
    team: Team, tools: ControlledTools
) -> None:
    canvas = team.create(team["ann"], guarded(tools)).canvas
    dropped = make_spec({"go": call_tool(tools.act, confirm="always")})
    with pytest.raises(Forbidden, match="another member must accept"):
        team.upsert(team["ann"], canvas.canvas_id, dropped, is_accepted=True)
    for author in (team["ann"], as_program(team["ann"], PrincipalKind.AGENT, "main")):
        proposed = team.upsert(author, canvas.canvas_id, dropped)
        assert not proposed.is_accepted
        with pytest.raises(Forbidden, match="another member must accept"):
            team.accept(team["ann"], proposed)
        asked = team.press(team["ann"], canvas.canvas_id)
        with pytest.raises(Forbidden, match="another person must approve"):
            team.answer(team["ann"], asked)
        team.upsert(team["ann"], canvas.canvas_id, guarded(tools))
    proposed = team.upsert(team["ann"], canvas.canvas_id, dropped)
    assert team.accept(team["bob"], proposed).is_accepted
    asked = team.press(team["ann"], canvas.canvas_id)
    assert team.answer(team["ann"], asked).status is ExecutionStatus.COMPLETED


@rule("RS-77", "RS-66")
def test_only_an_admin_accepts_a_spec_with_a_new_secret(team: Team, tools: ControlledTools) -> None:
    spec = make_spec({"go": call_tool(tools.act)})
    with_secret = {**spec, "toolPolicy": {**spec["toolPolicy"], "secrets": ["DEPLOY_KEY"]}}
    created = team.create(team["ann"], with_secret)
    assert not created.is_accepted
    with pytest.raises(Forbidden, match="only an admin"):
        team.create(team["ann"], with_secret, is_accepted=True)
    with pytest.raises(Forbidden, match="names the secret DEPLOY_KEY for the first time"):
        team.accept(team["bob"], created)
    accepted = team.accept(team["ada"], created)
    assert accepted.is_accepted
    again = team.upsert(team["ann"], created.canvas.canvas_id, {**with_secret, "title": "New"})
    assert again.is_accepted, "the accepted spec names it already"


@rule("RS-76")
def test_member_deletes_only_what_they_or_their_programs_made(team: Team) -> None:
    services, do = team.services, team.easel.do
    ann, bob = team["ann"], team["bob"]
    of_ann = (ann, as_program(ann, PrincipalKind.SERVICE, "ci"), as_program(ann, PrincipalKind.AGENT, "main"))
    for maker in of_ann:
        for deleter in of_ann:
            canvas = team.create(maker, {}).canvas
            assert canvas.created_by == ann.user_id
            for other in (bob, as_program(bob, PrincipalKind.SERVICE), as_program(bob, PrincipalKind.AGENT)):
                with pytest.raises(Forbidden, match="the person who made this canvas"):
                    do(services.canvases.delete(other, canvas.canvas_id))
            do(services.canvases.delete(deleter, canvas.canvas_id))
        session = do(services.sessions.create(maker, None, "Talk"))
        assert session.created_by == ann.user_id
        with pytest.raises(Forbidden, match="the person who made this session"):
            do(services.sessions.delete(bob, session.session_id))
        do(services.sessions.delete(ann, session.session_id))
    document = team.create(ann, {"version": 1, "mode": "markdown"}).canvas
    with pytest.raises(Forbidden):
        do(services.canvases.delete(bob, document.canvas_id))
    do(services.canvases.delete(team["ada"], document.canvas_id))


@rule("RS-76")
def test_session_that_a_run_creates_is_that_of_who_started_the_run(team: Team) -> None:
    services, do = team.services, team.easel.do
    name = new_session()
    do(services.queue.start(team["ann"], name, "noop"))
    do(services.queue.start(team["bob"], name, "noop"))
    with pytest.raises(Forbidden):
        do(services.sessions.delete(team["bob"], name))
    do(services.sessions.delete(team["ann"], name))


@rule("RS-76")
def test_only_an_admin_deletes_a_canvas_of_easel_itself(team: Team) -> None:
    canvas = team.create(host_for(team.id), {}).canvas
    for member in (team["ann"], host_for(team.id)):
        with pytest.raises(Forbidden):
            team.easel.do(team.services.canvases.delete(member, canvas.canvas_id))
    team.easel.do(team.services.canvases.delete(team["ada"], canvas.canvas_id))


@rule("RS-76", "RS-06")
def test_admin_reads_the_audit_records_of_the_account_only(team: Team) -> None:
    audit, do = team.services.audit, team.easel.do
    do(audit.record(team["ann"], "session.created", subject="by-ann"))
    do(
        audit.record(
            as_program(team["ann"], PrincipalKind.AGENT, "main"), "session.created", subject="by-agent"
        )
    )
    do(audit.record(THE_OWNER, "session.created", subject="elsewhere"))
    do(audit.record(EASEL, "audit.shortened", subject="of-host"))

    def subjects(reader: Principal) -> list[str]:
        records = [parse_record(link.record) for link in do(audit.list_records(reader, limit=50))]
        found = [record.get("subject", "") for record in records]
        return [name for name in found if name.startswith("by-") or name in {"elsewhere", "of-host"}][:3]

    assert subjects(team["ada"]) == ["by-agent", "by-ann"]
    assert subjects(replace(team["ada"], is_operator=True)) == ["of-host", "by-agent", "by-ann"]
    assert subjects(THE_OWNER)[:2] == ["of-host", "elsewhere"]
    assert not {"by-ann", "by-agent"} & set(subjects(THE_OWNER))
    for reader in (team["ann"], team["vera"]):
        with pytest.raises(Forbidden):
            do(audit.list_records(reader, limit=4))
    [by_agent, _] = do(audit.list_records(team["ada"], limit=2))
    actor = parse_record(by_agent.record)["actor"]
    assert (actor["kind"], actor["name"], actor["on_behalf_of"]) == ("agent", "main", team["ann"].user_id)


@rule("RS-76", "CV-35")
def test_views_name_the_person_and_one_does_not_replace_that_of_another(team: Team) -> None:
    """Two persons may use clients of the same name."""
    services, do = team.services, team.easel.do
    canvas_id = team.create(team["ann"], {}).canvas.canvas_id
    for who, connection in (("ann", "con_1"), ("bob", "con_2"), ("vera", "con_3"), ("bob", "con_4")):
        do(services.views.open(team[who], canvas_id, "browser", f"{connection}-{team.id}"))
    do(
        services.views.open(
            as_program(team["ada"], PrincipalKind.SERVICE), canvas_id, "ci", f"con_5-{team.id}"
        )
    )
    seen = do(services.canvases.get(team["vera"], canvas_id)).live_views
    expected = [team[who].user_id for who in ("ada", "ann", "bob", "vera")]
    assert sorted(view.user_id or "" for view in seen) == expected
    rows = team.easel.sql(
        "select cast(payload as text) as payload from canvas_events "
        f"where account_id = '{team.id}' and event_type = 'canvas.view.updated' order by seq"
    )
    events = [json.loads(row["payload"]) for row in rows]
    bob = team["bob"].user_id
    assert [(event["status"], event["userId"]) for event in events if event["userId"] == bob] == [
        ("opened", bob),
        ("closed", bob),
        ("opened", bob),
    ]
