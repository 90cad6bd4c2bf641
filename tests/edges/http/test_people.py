"""People, teams and members over HTTP, on SQLite and on Postgres. RS-76"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.edges.http.live import WAIT_SECONDS, WAITING, LiveEasel, new_session
from tests.requirements import rule
from tests.support.standstill import Stopwatch
from tests.support.strict_http import STRICT
from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from collections.abc import Iterator

_numbers = itertools.count(1)


class Person:
    """A person with a token in their own account, and one in each team."""

    def __init__(self, easel: LiveEasel, **options: Any) -> None:
        self.name = f"person-{next(_numbers)}"
        self.easel = easel
        made = easel.post("/api/people", {"name": self.name, **options})
        assert made.status_code == 201, made.text
        self.invitation_url: str = made.json()["invitation_url"]
        self.tokens = {self.name: made.json()["token"]}

    def ask(self, method: str, path: str, body: Any = None, *, account: str = "") -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self.tokens[account or self.name]}"}
        return httpx2.request(
            method,
            self.easel.base_url + path,
            headers=headers,
            timeout=WAIT_SECONDS,
            **({} if body is None else {"json": body}),
        )


class Team:
    def __init__(self, easel: LiveEasel, admin: Person, **roles: Person) -> None:
        """`roles`: the other members by role."""
        self.name, self.admin, self.easel = f"team-{next(_numbers)}", admin, easel
        made = easel.post("/api/teams", {"name": self.name, "admin": admin.name})
        assert made.status_code == 201, made.text
        self.admit(admin)
        for role, person in roles.items():
            assert self.set(admin, person, role).status_code == 200
            self.admit(person)

    def admit(self, person: Person) -> None:
        """Give a member a token in this team."""
        person.tokens[self.name] = self.easel.new_token("user", person.name, account_id=self.name)[1]

    def set(self, by: Person, person: Person, role: str) -> httpx2.Response:
        return by.ask("PUT", f"/api/members/{person.name}", {"role": role}, account=self.name)

    def remove(self, by: Person, person: Person) -> httpx2.Response:
        return by.ask("DELETE", f"/api/members/{person.name}", account=self.name)

    def roles(self, by: Person) -> dict[str, str]:
        listed = by.ask("GET", "/api/members", account=self.name)
        assert listed.status_code == 200, listed.text
        return {member["name"]: member["role"] for member in listed.json()["members"]}


def name_of(answer: httpx2.Response) -> str:
    return answer.json()["error"]["name"]


@pytest.fixture
def admin(easel: LiveEasel) -> Person:
    return Person(easel)


@pytest.fixture
def member(easel: LiveEasel) -> Person:
    return Person(easel)


@pytest.fixture
def team(easel: LiveEasel, admin: Person, member: Person) -> Team:
    return Team(easel, admin, member=member)


@pytest.fixture
def client(easel: LiveEasel) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=easel.base_url, timeout=WAIT_SECONDS, event_hooks=STRICT) as opened:
        yield opened


# -- people --------------------------------------------------------------------------------------------------


@rule("RS-76")
def test_added_person_is_listed_and_signs_in_with_the_token(easel: LiveEasel) -> None:
    ada = Person(easel)
    me = ada.ask("GET", "/api/me").json()
    own = {"account": ada.name, "kind": "person", "role": "admin"}
    assert me == {
        "kind": "person", "name": ada.name, "operator": False, "account": ada.name, "role": "admin",
        "accounts": [own],
    }  # fmt: skip
    listed = easel.get("/api/people", params={"limit": "1", "after": ada.name[:-1]}).json()["people"]
    assert [(person["name"], person["operator"]) for person in listed] == [(ada.name, False)]


@rule("RS-76")
@pytest.mark.parametrize(
    "name, status, error",
    [
        ("owner", 409, "ALREADY_EXISTS"),
        ("easel", 409, "ALREADY_EXISTS"),
        ("system", 409, "ALREADY_EXISTS"),
        ("Ada", 400, "BAD_INPUT"),
        ("", 400, "BAD_INPUT"),
        ("a/b", 400, "BAD_INPUT"),
        ("x" * 64, 400, "BAD_INPUT"),
    ],
)
def test_name_that_is_taken_reserved_or_invalid_is_refused(
    easel: LiveEasel, admin: Person, name: str, status: int, error: str
) -> None:
    for path, body in (("people", {"name": name}), ("teams", {"name": name, "admin": admin.name})):
        answer = easel.post(f"/api/{path}", body)
        assert (answer.status_code, name_of(answer)) == (status, error)


@rule("RS-76")
def test_deleted_person_is_gone_and_the_name_is_not_given_again(easel: LiveEasel) -> None:
    ada = Person(easel)
    assert easel.ask("DELETE", f"/api/people/{ada.name}").status_code == 204
    assert easel.ask("DELETE", f"/api/people/{ada.name}").status_code == 404
    wait_for_sync(lambda: ada.ask("GET", "/api/me").status_code == 401, what="the token ends")
    wait_for_sync(
        lambda: easel.sql(f"select 1 from accounts where account_id = '{ada.name}'") == [],
        what="the account is purged",
    )
    for path, body in (("people", {}), ("teams", {"admin": "owner"})):
        assert easel.post(f"/api/{path}", {"name": ada.name, **body}).status_code == 409


@rule("RS-76")
def test_only_operator_is_neither_disabled_nor_deleted(easel: LiveEasel) -> None:
    for answer in (
        easel.ask("PATCH", "/api/people/owner", json={"disabled": True}),
        easel.ask("DELETE", "/api/people/owner"),
    ):
        assert (answer.status_code, name_of(answer)) == (400, "BAD_INPUT")
        assert re.search("only operator|first person of a host", answer.text)


@rule("RS-76")
def test_person_who_is_no_operator_changes_no_people_and_teams(
    easel: LiveEasel, team: Team, member: Person
) -> None:
    for by, account in ((member, ""), (member, team.name), (team.admin, team.name)):
        for method, path, body in (
            ("GET", "/api/people", None),
            ("POST", "/api/people", {"name": "mine"}),
            ("PATCH", f"/api/people/{member.name}", {"disabled": True}),
            ("DELETE", f"/api/people/{member.name}", None),
            ("POST", "/api/people/owner/invitations", {}),
            ("GET", "/api/teams", None),
            ("POST", "/api/teams", {"name": "mine", "admin": member.name}),
            ("DELETE", f"/api/teams/{team.name}", None),
        ):
            assert by.ask(method, path, body, account=account).status_code == 403, path
    assert easel.get("/api/people").status_code == 200


# -- members -------------------------------------------------------------------------------------------------


@rule("RS-76")
def test_admin_changes_members_and_a_member_does_not(easel: LiveEasel, team: Team, member: Person) -> None:
    other = Person(easel)
    assert team.set(member, other, "viewer").status_code == 403
    assert team.remove(member, team.admin).status_code == 403
    assert team.set(member, member, "admin").status_code == 403, "nobody raises their own role"
    assert team.set(team.admin, other, "viewer").json() == {
        "name": other.name, "display_name": None, "role": "viewer",
    }  # fmt: skip
    assert team.set(team.admin, other, "owner").status_code == 400
    assert team.roles(member) == {team.admin.name: "admin", member.name: "member", other.name: "viewer"}
    assert team.remove(team.admin, other).status_code == 204
    assert team.remove(team.admin, other).status_code == 404


@rule("RS-76")
def test_members_are_listed_to_members_only(easel: LiveEasel, team: Team) -> None:
    stranger = Person(easel)
    for account in (team.name, "no-such-team"):
        answer = httpx2.get(
            f"{easel.base_url}/api/members",
            headers={"Authorization": f"Bearer {stranger.tokens[stranger.name]}", "Easel-Account": account},
        )
        assert answer.status_code == 404
        assert answer.text.replace(account, "ID").count(team.name) == 0
        assert team.admin.name not in answer.text
    own = stranger.ask("GET", "/api/members").json()["members"]
    assert [(member["name"], member["role"]) for member in own] == [(stranger.name, "admin")]


@rule("RS-76")
def test_operator_who_is_no_member_reads_no_members(easel: LiveEasel, team: Team) -> None:
    for method, path, body in (
        ("GET", "/api/members", None),
        ("PUT", "/api/members/owner", {"role": "admin"}),
        ("DELETE", f"/api/members/{team.admin.name}", None),
    ):
        answer = easel.ask(method, path, headers={"Easel-Account": team.name}, json=body)
        assert answer.status_code == 404


@rule("RS-76")
def test_personal_account_has_no_other_members(easel: LiveEasel, admin: Person, member: Person) -> None:
    answer = admin.ask("PUT", f"/api/members/{member.name}", {"role": "viewer"})
    assert answer.status_code == 400
    assert "only a team has members" in answer.text


@rule("RS-76")
def test_last_admin_stays_unless_the_operator_names_another(
    easel: LiveEasel, team: Team, member: Person
) -> None:
    admin = team.admin
    for answer in (
        team.remove(admin, admin),
        team.set(admin, admin, "member"),
        admin.ask("POST", "/api/me/leave", {}, account=team.name),
        easel.ask("PATCH", f"/api/people/{admin.name}", json={"disabled": True}),
        easel.ask("DELETE", f"/api/people/{admin.name}"),
    ):
        assert (answer.status_code, name_of(answer)) == (409, "LAST_ADMIN")
        assert team.name in answer.text
    named = {"disabled": True, "new_admin": member.name}
    assert easel.ask("PATCH", f"/api/people/{admin.name}", json=named).status_code == 200
    wait_for_sync(lambda: team.roles(member)[member.name] == "admin", what="the named admin")


@rule("RS-76", "RX-52")
def test_member_leaves_the_team_and_reads_it_no_longer(easel: LiveEasel, team: Team, member: Person) -> None:
    assert member.ask("POST", "/api/me/leave", {}, account=team.name).status_code == 204
    wait_for_sync(
        lambda: member.ask("GET", "/api/runs", account=team.name).status_code == 401, what="the token ends"
    )
    assert member.ask("GET", "/api/runs").status_code == 200, "in the own account"
    assert team.roles(team.admin) == {team.admin.name: "admin"}


# -- who leaves ----------------------------------------------------------------------------------------------


def start_waiting_run(person: Person, account: str) -> str:
    answer = person.ask(
        "POST", "/api/runs", {"session_id": new_session(), "message": WAITING}, account=account
    )
    assert answer.status_code == 202, answer.text
    return answer.json()["run_id"]


def status_of(easel: LiveEasel, run_id: str) -> str:
    [row] = easel.sql(f"select status from runs where run_id = '{run_id}'")
    return row["status"]


@rule("RS-76", "RX-52")
@pytest.mark.parametrize("end", ["removed", "disabled", "deleted"])
def test_runs_of_who_leaves_are_cancelled_and_those_of_others_go_on(
    easel: LiveEasel, team: Team, member: Person, end: str
) -> None:
    theirs, others = start_waiting_run(member, team.name), start_waiting_run(team.admin, team.name)
    at_home = start_waiting_run(member, member.name)
    wait_for_sync(lambda: status_of(easel, theirs) == "running", what="the run starts")
    if end == "removed":
        assert team.remove(team.admin, member).status_code == 204
    elif end == "disabled":
        assert easel.ask("PATCH", f"/api/people/{member.name}", json={"disabled": True}).status_code == 200
    else:
        assert easel.ask("DELETE", f"/api/people/{member.name}").status_code == 204
    wait_for_sync(lambda: status_of(easel, theirs) == "cancelled", what="the run in the team is cancelled")
    assert status_of(easel, others) in ("queued", "running")
    if end == "disabled":
        wait_for_sync(lambda: status_of(easel, at_home) == "cancelled", what="the own run is cancelled")
    elif end == "removed":
        assert status_of(easel, at_home) == "running"
    [row] = easel.sql(f"select started_by from runs where run_id = '{theirs}'")
    assert row["started_by"] == member.name, "what they did keeps their name"
    easel.ask("DELETE", f"/api/teams/{team.name}")


def rpc(person: Person, account: str, method: str, **params: Any) -> dict[str, Any]:
    answer = person.ask("POST", "/api/rpc", {"method": method, "params": params}, account=account)
    assert answer.status_code == 200, answer.text
    return answer.json()


ASKING = {
    "version": 1,
    "toolPolicy": {"allow": ["gsv__Echo"]},
    "actions": {
        "go": {"kind": "tool.call", "tool": "gsv__Echo", "args": {"value": 1}, "confirm": "always"},
    },
}


@rule("RS-76", "RX-52")
def test_questions_of_who_leaves_end_as_refused_and_those_of_others_wait(
    easel: LiveEasel, team: Team, member: Person
) -> None:
    rpc(team.admin, team.name, "canvas.create", canvasId="cockpit", spec=ASKING)
    asked = {
        person.name: rpc(person, team.name, "canvas.action", canvasId="cockpit", actionId="go")
        for person in (member, team.admin)
    }
    assert {answer["status"] for answer in asked.values()} == {"needs_confirmation"}
    assert team.remove(team.admin, member).status_code == 204
    waiting = rpc(team.admin, team.name, "canvas.confirmations", canvasId="cockpit")["confirmations"]
    assert [one["confirmationId"] for one in waiting] == [asked[team.admin.name]["confirmationId"]]
    [ended] = rpc(team.admin, team.name, "canvas.records", canvasId="cockpit", status="refused")["records"]
    assert ended["actor"]["userId"] == member.name, "the record keeps the name"
    events = easel.sql("select payload from canvas_events where event_type = 'canvas.action.refused'")
    assert any("has left this account" in str(event["payload"]) for event in events)


@rule("RS-76", "RX-52")
@pytest.mark.parametrize("end", ["removed", "disabled"])
def test_streams_of_who_leaves_end_within_5_s_on_another_instance(two_edges: LiveEasel, end: str) -> None:
    admin, member = Person(two_edges), Person(two_edges)
    team = Team(two_edges, admin, member=member)
    run_id = start_waiting_run(member, team.name)
    with httpx2.stream(
        "GET",
        f"{two_edges.instances[1].base_url}/api/runs/{run_id}/events",
        headers={"Authorization": f"Bearer {member.tokens[team.name]}"},
        timeout=WAIT_SECONDS,
    ) as answer:
        lines = answer.iter_lines()
        assert next(lines)
        watch = Stopwatch()
        if end == "removed":
            assert team.remove(admin, member).status_code == 204
        else:
            disabled = two_edges.ask("PATCH", f"/api/people/{member.name}", json={"disabled": True})
            assert disabled.status_code == 200
        for _ in lines:
            pass
        assert watch.seconds < 5
    wait_for_sync(lambda: status_of(two_edges, run_id) == "cancelled", what="the claim ends")
    assert watch.seconds < 5


# -- review --------------------------------------------------------------------------------------------------


def _weak_token(easel: LiveEasel, name: str, account_id: str) -> str:
    return easel.new_token("user", name, account_id=account_id, role="viewer", days=1)[1]


@rule("RS-76")
def test_sign_in_by_a_token_gives_no_more_rights_than_the_token(
    easel: LiveEasel, team: Team, member: Person, client: httpx2.Client
) -> None:
    """A token reaches its own account only, with its role: also as the cookie of a browser."""
    client.post("/sign-in", data={"token": _weak_token(easel, member.name, team.name)})
    own = client.get("/api/me", headers={"Easel-Account": member.name})
    assert own.status_code in (401, 404), own.text
    made = client.post("/api/tokens", json={"kind": "user"}, headers={"Easel-Account": team.name})
    assert made.status_code in (401, 403), made.text


@rule("RS-76")
def test_viewer_token_of_an_operator_administers_nothing(easel: LiveEasel, member: Person) -> None:
    headers = {"Authorization": f"Bearer {_weak_token(easel, 'owner', 'owner')}"}
    asked = httpx2.post(
        f"{easel.base_url}/api/people/{member.name}/invitations",
        json={}, headers=headers, timeout=WAIT_SECONDS,
    )  # fmt: skip
    assert (asked.status_code, name_of(asked)) == (403, "FORBIDDEN")


@rule("RS-76")
def test_token_of_a_team_does_not_set_the_first_password_of_its_person(
    easel: LiveEasel, team: Team, member: Person, client: httpx2.Client
) -> None:
    token = _weak_token(easel, member.name, team.name)
    asked = httpx2.post(
        f"{easel.base_url}/api/me/password",
        json={"new_password": "correct horse battery 9"},
        headers={"Authorization": f"Bearer {token}"},
        timeout=WAIT_SECONDS,
    )
    assert asked.status_code == 403, asked.text
    form = {"name": member.name, "password": "correct horse battery 9"}
    assert client.post("/sign-in", data=form).status_code == 401


@rule("RS-76")
def test_token_makes_no_tokens(easel: LiveEasel, team: Team, member: Person) -> None:
    _, secret = easel.new_token("user", member.name, account_id=team.name, days=1)
    bearer = {"Authorization": f"Bearer {secret}"}
    asked = httpx2.post(
        f"{easel.base_url}/api/tokens", json={"kind": "user"}, headers=bearer, timeout=WAIT_SECONDS
    )
    assert (asked.status_code, name_of(asked)) == (403, "FORBIDDEN")


@rule("RS-76")
def test_link_of_another_person_does_not_change_who_is_signed_in(
    easel: LiveEasel, member: Person, client: httpx2.Client
) -> None:
    _, secret = easel.new_token("user", member.name)
    assert client.get("/", params={"token": easel.token}).status_code == 303
    asked = client.get("/", params={"token": secret})
    assert (asked.status_code, "signed in as owner" in asked.text) == (409, True)
    assert client.get("/api/me").json()["name"] == "owner"


@rule("RS-76")
def test_two_accounts_in_one_request_are_refused(easel: LiveEasel) -> None:
    asked = easel.get("/api/runs?account=owner&account=nope")
    assert (asked.status_code, name_of(asked)) == (400, "BAD_INPUT")


@rule("RS-76")
def test_records_of_people_stay_with_the_operator_and_those_of_members_with_the_team(
    easel: LiveEasel, team: Team
) -> None:
    easel.sql(
        f"insert into team_members (account_id, user_id, role) values ('{team.name}', 'owner', 'viewer')"
    )
    headers = {"Cookie": easel.new_cookie(), "Easel-Account": team.name}
    with easel.stranger() as http:
        name = f"hired-{team.name}"
        assert http.post("/api/people", json={"name": name}, headers=headers).status_code == 201
        assert team.admin.ask("PUT", f"/api/members/{name}", {"role": "viewer"}, account=team.name).is_success
        own = http.get("/api/audit", headers={"Cookie": headers["Cookie"]}).json()["records"]
    of_team = team.admin.ask("GET", "/api/audit", account=team.name).json()["records"]
    actions = [{record["action"] for record in records if name in str(record)} for records in (own, of_team)]
    assert "person.added" in actions[0]
    assert actions[1] == {"member.set"}
