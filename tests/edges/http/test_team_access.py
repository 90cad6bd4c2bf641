"""The rights of the members of a team over HTTP and in the chat, by their roles. RS-76"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from easel.core.document.document import revision_of
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import case, rule
from tests.support.chat import Chat, Complaint, Pong
from tests.support.sse import Event

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx2

ROLES = {"vera": "viewer", "ann": "member", "bob": "member", "ada": "admin"}


class Team:
    """A team on a running Easel, whose members sign in with tokens of the team."""

    def __init__(self, easel: LiveEasel) -> None:
        self.easel = easel
        for name in ROLES:
            easel.add_person(name)
        easel.add_team("devs", **ROLES)
        self.tokens = {name: easel.new_token("user", name, account_id="devs")[1] for name in ROLES}

    def ask(self, who: str, method: str, path: str, body: object = None) -> httpx2.Response:
        with self.easel.stranger() as client:
            headers = {"Authorization": f"Bearer {self.tokens[who]}"}
            return client.request(method, path, headers=headers, json=body)

    def call(self, who: str, method: str, **params: object) -> httpx2.Response:
        return self.ask(who, "POST", "/api/rpc", {"method": method, "params": params})


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    with LiveEasel(tmp_path_factory.mktemp("easel")) as live:
        yield Team(live)


# --- the chat -----------------------------------------------------------------------------------------------


@rule("RS-76", "CC-03")
async def test_viewer_reads_the_chat_and_neither_talks_nor_cancels(team: Team) -> None:
    thread = new_session()
    run = await asyncio.to_thread(
        team.ask, "ann", "POST", "/api/runs", {"session_id": thread, "message": "noop"}
    )
    assert run.status_code == 202
    async with (
        asyncio.timeout(30),
        Chat.open(team.easel.base_url, thread, team.tokens["vera"], after=0) as chat,
    ):
        first = await chat.hear()
        assert isinstance(first, Event)
        assert first.data["text"] == "noop"
        for send in (lambda: chat.say("mine"), chat.cancel):
            await send()
            while not isinstance(heard := await chat.hear(), Complaint):
                assert isinstance(heard, Event)
            assert (heard.code, heard.name) == (403, "FORBIDDEN")
            assert "the role member" in heard.message
        await chat.send(json.dumps({"type": "ping"}))
        while isinstance(heard := await chat.hear(), Event):
            pass
        assert isinstance(heard, Pong), "the connection stays open"
    runs = team.ask("vera", "GET", f"/api/runs?session_id={thread}").json()["runs"]
    assert [one["input_text"] for one in runs] == ["noop"]


@rule("RS-76")
async def test_member_talks_in_the_chat(team: Team) -> None:
    thread = new_session()
    async with asyncio.timeout(30), Chat.open(team.easel.base_url, thread, team.tokens["bob"]) as chat:
        await chat.say("noop")
        assert isinstance(await chat.hear(), Event)
    [run] = team.ask("vera", "GET", f"/api/runs?session_id={thread}").json()["runs"]
    assert run["started_by"] == "bob"


# --- documents, deletions, the audit trail ------------------------------------------------------------------


@rule("RS-76")
@case("C7")
def test_two_members_do_not_overwrite_each_other(team: Team) -> None:
    name = new_session()
    made = team.call("ann", "canvas.create", canvasId=name, spec={"version": 1, "mode": "markdown"})
    assert made.json()["descriptor"]["createdBy"] == "ann"
    path = f"/api/documents/{name}"
    blind = team.ask("ann", "PUT", path, {"text": "mine\n"})
    assert (blind.status_code, "base_revision_id" in blind.json()["error"]["message"]) == (400, True)
    base = team.ask("bob", "GET", path).json()["revision_id"]
    assert team.ask("ann", "PUT", path, {"text": "of ann\n", "base_revision_id": base}).status_code == 200
    late = team.ask("bob", "PUT", path, {"text": "of bob\n", "base_revision_id": base})
    assert late.status_code == 409
    assert late.json()["error"]["details"] == {"revision_id": revision_of("of ann\n"), "text": "of ann\n"}


@rule("RS-76")
def test_member_deletes_only_what_they_made(team: Team) -> None:
    name = new_session()
    team.call("ann", "canvas.create", canvasId=name)
    made = team.ask("ann", "POST", "/api/sessions", {"session_id": name})
    assert made.json()["created_by"] == "ann"
    for refused in (
        team.ask("bob", "DELETE", f"/api/sessions/{name}"),
        team.call("bob", "canvas.delete", canvasId=name),
    ):
        assert (refused.status_code, refused.json()["error"]["name"]) == (403, "FORBIDDEN")
    assert team.ask("ann", "DELETE", f"/api/sessions/{name}").status_code == 204
    assert team.call("ada", "canvas.delete", canvasId=name).json() == {
        "ok": True,
        "canvasId": name,
        "deleted": True,
    }


@rule("RS-76", "RS-06")
def test_admin_of_a_team_reads_its_audit_records_and_no_others(team: Team) -> None:
    name = new_session()
    team.ask("ann", "POST", "/api/sessions", {"session_id": name})
    team.easel.post("/api/sessions", {"session_id": f"own-{name}"})
    assert team.ask("bob", "GET", "/api/audit").status_code == 403
    records = team.ask("ada", "GET", "/api/audit?limit=200").json()["records"]
    assert {record["actor"]["account_id"] for record in records} == {"devs"}
    [made] = [record for record in records if record.get("subject") == name]
    assert (made["action"], made["actor"]["user_id"]) == ("session.created", "ann")
    of_operator = team.easel.get("/api/audit?limit=200").json()["records"]
    assert {record["actor"]["account_id"] for record in of_operator} <= {"owner", ""}
    assert any(record.get("subject") == f"own-{name}" for record in of_operator)


@rule("RS-77")
def test_question_names_who_asked_and_who_may_approve(team: Team) -> None:
    name = new_session()
    patch = {"kind": "state.patch", "patch": [{"op": "add", "path": "/n", "value": 1}], "confirm": "always"}
    spec = {"version": 1, "actions": {"go": {**patch, "approval": "another"}}}
    assert team.call("ann", "canvas.create", canvasId=name, spec=spec).status_code == 200
    asked = team.call("ann", "canvas.action", canvasId=name, actionId="go").json()
    assert (asked["status"], asked["approval"], asked["askedBy"]) == ("needs_confirmation", "another", "ann")
    for who, may_approve in (("ann", False), ("bob", True)):
        [pending] = team.call(who, "canvas.confirmations", canvasId=name).json()["confirmations"]
        assert (pending["approval"], pending["askedBy"], pending["mayApprove"]) == (
            "another",
            "ann",
            may_approve,
        )
    answer = {"confirmationId": asked["confirmationId"], "approve": True}
    refused = team.call("ann", "canvas.confirm", **answer)
    assert (refused.status_code, "another person must approve" in refused.text) == (403, True)
    assert team.call("vera", "canvas.confirm", **answer).status_code == 403
    assert team.call("bob", "canvas.confirm", **answer).json()["status"] == "completed"
    own = team.easel.post("/api/rpc", {"method": "canvas.create", "params": {"canvasId": name, "spec": spec}})
    assert (own.status_code, "actions.go.approval" in own.text) == (400, True)
