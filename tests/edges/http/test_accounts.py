"""The account of a request: named by a header or the query, and reached with the role there only. RS-76"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.edges.http.live import WAIT_SECONDS, LiveEasel, cookie_name
from tests.requirements import case, rule
from tests.support.gateway import GatewayClient
from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx2

ROLES = ("viewer", "member", "admin")


@pytest.fixture(scope="module")
def team(two_edges: LiveEasel) -> LiveEasel:
    """Two instances with the team `devs`, whose members are named by their roles, and `ops` without them."""
    for role in ROLES:
        two_edges.add_person(f"{role}-a")
    two_edges.add_person("outsider")
    two_edges.add_team("devs", **{f"{role}-a": role for role in ROLES})
    two_edges.add_team("ops", outsider="admin")
    return two_edges


@pytest.fixture
def browser(team: LiveEasel) -> Iterator[httpx2.Client]:
    with team.stranger() as client:
        yield client


def as_person(team: LiveEasel, name: str, account: str | None = "devs") -> dict[str, str]:
    named = {} if account is None else {"Easel-Account": account}
    return {"Cookie": team.new_cookie(name), **named}


@rule("RS-76")
def test_cookie_reaches_the_person_s_own_account_unless_another_is_named(
    team: LiveEasel, browser: httpx2.Client
) -> None:
    body = {"session_id": "own-or-team", "message": "noop"}
    own, of_team = as_person(team, "member-a", None), as_person(team, "member-a")
    run_id = browser.post("/api/runs", json=body, headers=of_team).json()["run_id"]
    assert browser.get(f"/api/runs/{run_id}", headers=of_team).status_code == 200
    assert browser.get(f"/api/runs/{run_id}", headers=own).status_code == 404
    by_query = {"Cookie": own["Cookie"]}
    assert browser.get(f"/api/runs/{run_id}?account=devs", headers=by_query).status_code == 200
    assert browser.get(f"/api/runs/{run_id}?account=devs", headers=of_team).status_code == 200
    differ = browser.get(f"/api/runs/{run_id}?account=ops", headers=of_team)
    assert (differ.status_code, differ.json()["error"]["name"]) == (400, "BAD_INPUT")
    assert browser.get("/api/runs?account=", headers=by_query).status_code == 400


@rule("RS-76", "RX-54")
@pytest.mark.parametrize("who", ["outsider", "owner"])
def test_account_one_is_not_in_answers_like_a_missing_one(
    team: LiveEasel, browser: httpx2.Client, who: str
) -> None:
    """Also for the operator of the host, who reads no other account's rows."""
    answers = [browser.get("/api/runs", headers=as_person(team, who, name)) for name in ("devs", "gone")]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert answers[0].text.replace("devs", "gone") == answers[1].text


@rule("RS-76")
def test_token_reaches_its_own_account_only(team: LiveEasel, browser: httpx2.Client) -> None:
    _, secret = team.new_token("user", "admin-a", account_id="devs")
    bearer = {"Authorization": f"Bearer {secret}"}
    assert browser.get("/api/settings", headers=bearer).status_code == 200
    assert browser.get("/api/settings", headers={**bearer, "Easel-Account": "devs"}).status_code == 200
    for other in ("admin-a", "ops", "gone"):
        assert browser.get("/api/settings", headers={**bearer, "Easel-Account": other}).status_code == 404


@rule("RS-76")
@pytest.mark.parametrize("role", ROLES)
def test_role_decides_what_a_member_may_do(team: LiveEasel, browser: httpx2.Client, role: str) -> None:
    headers = as_person(team, f"{role}-a")
    expected = {"viewer": (200, 403, 403), "member": (200, 201, 403), "admin": (200, 201, 200)}[role]
    answers = (
        browser.get("/api/sessions", headers=headers),
        browser.post("/api/sessions", json={"title": "t"}, headers=headers),
        browser.get("/api/settings", headers=headers),
    )
    assert tuple(answer.status_code for answer in answers) == expected


@rule("RS-76")
@case("O8")
async def test_socket_names_its_account_in_the_query_and_no_client_raises_its_role(team: LiveEasel) -> None:
    cookie = team.new_cookie("viewer-a")
    async with GatewayClient.open(team.base_url, None, query="?account=devs", Cookie=cookie) as client:
        await client.connect()
        assert await client.call("canvas.list")
        refused = await client.refusal("canvas.create", {"canvasId": "c", "role": "admin", "spec": {}})
        assert refused is not None
        assert refused.code == 403


@rule("RS-76")
@pytest.mark.parametrize(
    "change",
    [
        "delete from team_members where user_id = 'leaver'",
        "update team_members set role = 'viewer' where user_id = 'leaver'",
    ],
)
async def test_change_of_a_role_closes_open_connections_on_the_other_instance(
    team: LiveEasel, change: str
) -> None:
    team.sql("delete from accounts where account_id = 'leaver'")
    team.add_person("leaver")
    team.sql("insert into team_members (account_id, user_id, role) values ('devs', 'leaver', 'admin')")
    value = team.new_cookie("leaver").partition("=")[2]
    cookie = "; ".join(f"{cookie_name(instance.base_url)}={value}" for instance in team.instances)
    async with GatewayClient.open(
        team.instances[1].base_url, None, query="?account=devs", Cookie=cookie
    ) as client:
        await client.connect()
        assert await client.call("canvas.list")
        team.sql(change)
        code, _ = await client.closed()
        assert code == (1008 if change.startswith("delete") else 1012)
    with team.stranger() as http:
        headers = {"Cookie": cookie, "Easel-Account": "devs"}
        wait_for_sync(
            lambda: http.get("/api/settings", headers=headers).status_code in (403, 404),
            within=WAIT_SECONDS,
            what="the role changes",
        )


# --- tokens -------------------------------------------------------------------------------------------------


@rule("RS-76")
def test_member_makes_no_token_of_a_node_of_another(team: LiveEasel, browser: httpx2.Client) -> None:
    member, admin = as_person(team, "member-a"), as_person(team, "admin-a")

    def make(headers: dict[str, str], name: str) -> int:
        asked = {"kind": "node", "name": name}
        return browser.post("/api/tokens", json=asked, headers=headers).status_code

    assert [make(admin, "box"), make(member, "box")] == [201, 403]
    assert [make(member, "own"), make(member, "own")] == [201, 201]
    assert make(admin, "own") == 201, "an admin may"
    assert make(as_person(team, "outsider", "ops"), "box") == 201, "in another account"


@rule("RS-76")
def test_member_makes_lists_and_revokes_tokens_of_their_own(team: LiveEasel, browser: httpx2.Client) -> None:
    member, admin = as_person(team, "member-a"), as_person(team, "admin-a")
    refused = browser.post("/api/tokens", json={"kind": "user", "role": "admin"}, headers=member)
    assert (refused.status_code, "at most the role member" in refused.text) == (403, True)
    assert (
        browser.post("/api/tokens", json={"kind": "user"}, headers=as_person(team, "viewer-a")).status_code
        == 403
    )
    made = browser.post("/api/tokens", json={"kind": "service", "days": 7}, headers=member).json()
    bearer = {"Authorization": f"Bearer {made['token']}"}
    assert browser.get("/api/runs", headers=bearer).status_code == 200
    assert browser.get("/api/settings", headers=bearer).status_code == 403
    assert browser.get("/api/tokens", headers=bearer).status_code == 403, "a service makes no tokens"
    of_admin = browser.post("/api/tokens", json={"kind": "user"}, headers=admin).json()
    listed = {
        name: [token["token_id"] for token in browser.get("/api/tokens", headers=who).json()["tokens"]]
        for name, who in (("member", member), ("admin", admin), ("own", as_person(team, "member-a", None)))
    }
    assert made["token_id"] in listed["member"]
    assert of_admin["token_id"] not in listed["member"]
    assert {made["token_id"], of_admin["token_id"]} <= {*listed["admin"]}
    assert listed["own"] == []
    assert made["token"] not in browser.get("/api/tokens", headers=admin).text
    for who, token, status in (
        (member, of_admin, 404),
        (as_person(team, "outsider", "ops"), made, 404),
        (admin, made, 204),
        (admin, made, 404),
    ):
        assert browser.delete(f"/api/tokens/{token['token_id']}", headers=who).status_code == status
    wait_for_sync(
        lambda: browser.get("/api/runs", headers=bearer).status_code == 401,
        within=WAIT_SECONDS,
        what="the token is refused",
    )
