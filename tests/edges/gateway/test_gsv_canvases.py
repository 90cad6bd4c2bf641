"""The canvas methods in the words of GSV's clients. RS-67"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from easel.edges.methods import METHODS
from easel.edges.params import MAX_OFFSET, OfCanvas, Subscribe
from tests.edges.gateway.canvas_calls import add, refusal_of
from tests.edges.http.live import new_session
from tests.requirements import rule

if TYPE_CHECKING:
    from tests.edges.http.live import LiveEasel
    from tests.support.gateway import GatewayClient

ASK = {"version": 1, "actions": {"ask": {"kind": "state.patch", "patch": [add("x", 1)], "confirm": "always"}}}


# --- agentId ------------------------------------------------------------------------------------------------


@rule("RS-67", "CV-08", "CV-33")
def test_every_canvas_method_takes_an_agent_id() -> None:
    shapes = {name: method.params for name, method in METHODS.items() if name.startswith("canvas.")}
    shapes |= {"canvas.subscribe": Subscribe, "canvas.unsubscribe": OfCanvas}
    without = [
        name
        for name, shape in shapes.items()
        if "agentId" not in {field.name for field in msgspec.structs.fields(shape)}
    ]
    assert without == []


def _calls(canvas: str, event_id: str) -> dict[str, dict[str, Any]]:
    """Return a call of every method that names an existing canvas, by method."""
    path = {"path": "assets/a"}
    members: dict[str, dict[str, Any]] = {
        "canvas.patch": {"statePatch": [add("x", 1)]},
        "canvas.action": {"actionId": "ask"},
        "canvas.cancel": {"eventId": event_id},
        "canvas.accept": {"revision": 1},
        "canvas.restore": {"version": 1},
        "canvas.input": {"path": "/n", "value": 1},
        "canvas.report": {"what": "kind"},
        "canvas.asset.put": {**path, "text": "a"},
        "canvas.asset.get": path,
        "canvas.asset.delete": path,
    }
    creating = {"canvas.list", "canvas.create", "canvas.upsert", "canvas.delete", "canvas.confirm"}
    names = {*METHODS, "canvas.subscribe", "canvas.unsubscribe"} - creating
    return {
        name: {"canvasId": canvas, **members.get(name, {})} for name in names if name.startswith("canvas.")
    }


@rule("RS-67", "CV-08")
async def test_canvas_of_another_agent_is_not_found_like_a_missing_one(client: GatewayClient) -> None:
    name = new_session()
    await client.call("canvas.create", canvasId=name, agentId="painter", spec=ASK, state={"n": 0})
    asked = (await client.call("canvas.action", canvasId=name, actionId="ask"))["confirmationId"]
    before = await client.call("canvas.get", canvasId=name, agentId="painter")
    for method, params in _calls(name, asked).items():
        refused = await refusal_of(client.ask(method, {**params, "agentId": "other"}))
        assert refused.code == 404, method
        missing = await refusal_of(client.ask(method, {**params, "canvasId": "no-such", "agentId": "other"}))
        assert missing.code == 404, method
        assert refused.error["message"].replace(name, "no-such") == missing.error["message"], method
    confirm = {"confirmationId": asked, "approve": True}
    assert (await refusal_of(client.ask("canvas.confirm", {**confirm, "agentId": "other"}))).code == 404
    deleted = await client.call("canvas.delete", canvasId=name, agentId="other")
    assert deleted == {"ok": True, "canvasId": name, "deleted": False}
    assert await client.call("canvas.get", canvasId=name) == before, "nothing was changed"
    answer = await client.ask("canvas.confirm", {**confirm, "agentId": "painter"})
    assert (answer["ok"], answer["status"]) == (True, "completed")
    closed = await refusal_of(client.ask("canvas.confirm", {**confirm, "agentId": "painter"}))
    hidden = await refusal_of(client.ask("canvas.confirm", {**confirm, "agentId": "other"}))
    assert (closed.error["name"], hidden.error["name"]) == ("CONFIRMATION_CLOSED", "NOT_FOUND")


@rule("RS-67", "CV-34")
async def test_id_of_another_agents_canvas_is_a_conflict(client: GatewayClient, canvas: str) -> None:
    for method in ("canvas.create", "canvas.upsert"):
        refused = await refusal_of(client.call(method, canvasId=canvas, agentId="other", title="Mine"))
        assert (refused.code, refused.error["name"]) == (409, "ALREADY_EXISTS")
    for members in ({}, {"mode": "markdown"}):
        call = client.call("canvas.upsert", canvasId=canvas, agentId="other", expectedRevision=7, **members)
        refused = await refusal_of(call)
        assert (refused.error["name"], "currentRevision" in refused.details) == ("ALREADY_EXISTS", False)
    assert (await client.call("canvas.get", canvasId=canvas))["descriptor"]["title"] == "Cockpit"
    assert (await client.call("canvas.upsert", canvasId=canvas, agentId="main", title="Mine"))[
        "revision"
    ] == 2


# --- listing ------------------------------------------------------------------------------------------------


@rule("RS-67", "CV-33")
async def test_list_takes_an_offset_and_counts_all_canvases(client: GatewayClient) -> None:
    agent = new_session()
    names = [f"{agent}-{n}" for n in range(5)]
    for name in names:
        await client.call("canvas.create", canvasId=name, agentId=agent)

    async def listed(**params: Any) -> tuple[list[str], int | None]:
        page = await client.call("canvas.list", agentId=agent, **params)
        return [row["canvasId"] for row in page["canvases"]], page.get("count")

    assert await listed(limit=200, offset=0) == (names, 5)
    assert await listed(limit=2) == (names[:2], 5)
    assert await listed(limit=2, offset=3) == (names[3:], 5)
    assert await listed(limit=2, offset=5) == ([], 5)
    assert await listed(limit=2, offset=MAX_OFFSET) == ([], 5)
    assert await listed(limit=2, after=names[2]) == (names[3:], None)
    await client.call("canvas.delete", canvasId=names[0])
    assert await listed(limit=2, offset=1) == (names[2:4], 4)
    everything = await client.call("canvas.list", limit=1, offset=1)
    assert everything["count"] >= 4
    for params in ({"offset": MAX_OFFSET + 1}, {"offset": -1}, {"offset": 1, "after": names[0]}):
        assert (await refusal_of(client.ask("canvas.list", params))).code == 400


@rule("RS-67", "CV-33")
async def test_list_returns_at_most_500_canvases_for_a_larger_limit(client: GatewayClient) -> None:
    assert await client.call("canvas.list", limit=10**12) == await client.call("canvas.list", limit=500)
    assert (await refusal_of(client.call("canvas.list", limit=0))).code == 400


# --- creating -----------------------------------------------------------------------------------------------


@rule("RS-67", "CV-34")
async def test_canvas_id_is_made_of_the_title_and_gets_a_suffix_if_it_is_taken(client: GatewayClient) -> None:
    word = new_session().lower().replace("_", "-")
    title = f"  Büro {word}: Größe/Plan__2! "
    first = await client.call("canvas.create", title=title, mode="html")
    slug = f"buro-{word}-groe-plan-2"
    assert (first["descriptor"]["canvasId"], first["descriptor"]["mode"]) == (slug, "html")
    assert first["descriptor"]["title"] == title.strip()
    for method in ("canvas.create", "canvas.upsert"):
        made = (await client.call(method, title=title))["descriptor"]["canvasId"]
        assert re.fullmatch(rf"{slug}-[0-9a-f]{{8}}", made), made
    assert (await client.call("canvas.get", canvasId=slug))["revision"] == 1, "it was not replaced"
    long = await client.call("canvas.create", title=f"{word} {'x' * 150}")
    longer = await client.call("canvas.create", title=f"{word} {'x' * 160}")
    assert [len(made["descriptor"]["canvasId"]) for made in (long, longer)] == [96, 96]
    untitled = (await client.call("canvas.create", title="…"))["descriptor"]["canvasId"]
    assert untitled == "canvas" or re.fullmatch(r"canvas-[0-9a-f]{8}", untitled)


@rule("RS-67")
@pytest.mark.parametrize("title", ["👩\u200d💻 Dev", "نامه\u200cها"])
async def test_title_may_have_joiners(client: GatewayClient, title: str) -> None:
    """Regression: an emoji of several characters was refused as not printable."""
    created = await client.call("canvas.create", title=title)
    assert created["descriptor"]["title"] == title
    for hostile in ("\u202edev", "\u200d", "a\u2066b", "a\u200d \u200d"):
        assert (await refusal_of(client.call("canvas.create", title=hostile))).code == 400


@rule("RS-67")
@pytest.mark.parametrize("method", ["canvas.create", "canvas.upsert"])
async def test_mode_beside_the_spec_becomes_the_mode_of_the_spec(client: GatewayClient, method: str) -> None:
    async def write(**params: Any) -> Any:
        return (await client.call(method, canvasId=new_session(), **params))["spec"]

    assert await write(mode="markdown") == {"version": 1, "mode": "markdown"}
    assert await write(mode="html", spec={"version": 1, "x-a": 1}) == {"version": 1, "x-a": 1, "mode": "html"}
    assert (await write(mode="html", spec={"mode": "html"}))["mode"] == "html"
    for params in ({"mode": "a2ui"}, {"mode": "html", "spec": {"mode": "markdown"}}):
        refused = await refusal_of(write(**params))
        assert (refused.code, refused.error["message"].startswith("mode: ")) == (400, True)


@rule("RS-67")
@pytest.mark.parametrize("method", ["canvas.patch", "canvas.upsert"])
async def test_mode_of_an_existing_canvas_changes_without_a_spec(client: GatewayClient, method: str) -> None:
    name, spec = new_session(), {"version": 1, "mode": "html", "x-note": "kept"}
    await client.call("canvas.create", canvasId=name, spec=spec)
    same = await client.call(method, canvasId=name, mode="html")
    assert same["revision"] == 1
    changed = await client.call(method, canvasId=name, mode="markdown")
    assert (changed["spec"], changed["revision"]) == ({**spec, "mode": "markdown"}, 2)
    stale = await refusal_of(client.call(method, canvasId=name, mode="html", expectedRevision=1))
    assert (stale.code, stale.details["currentRevision"]) == (409, 2)
    assert (await refusal_of(client.call(method, canvasId=name, mode="pdf"))).code == 400
    if method == "canvas.patch":
        assert (await refusal_of(client.call(method, canvasId=new_session(), mode="html"))).code == 404


# --- the owner's session ------------------------------------------------------------------------------------


@rule("RS-67")
async def test_main_is_an_alias_of_the_agents_main_session(client: GatewayClient) -> None:
    name = new_session()

    async def owner(method: str, **params: Any) -> str:
        return (await client.call(method, canvasId=name, **params))["descriptor"]["ownerSessionKey"]

    main, other = "agent:painter:main", "agent:painter:atelier"
    assert await owner("canvas.create", agentId="painter", ownerSessionKey="main") == main
    assert await owner("canvas.upsert", ownerSessionKey=other) == other
    assert await owner("canvas.upsert", ownerSessionKey="main") == main
    assert await owner("canvas.patch", ownerSessionKey=other) == other
    assert await owner("canvas.patch", title="The owner stays") == other
    assert await owner("canvas.patch", ownerSessionKey="main") == main
    await owner("canvas.patch", ownerSessionKey=other)
    assert await owner("canvas.patch", ownerSessionKey=None) == main
    for method in ("canvas.patch", "canvas.upsert"):
        await owner("canvas.patch", ownerSessionKey=other)
        assert await owner(method, ownerSessionKey="") == main
    refused = await refusal_of(client.call("canvas.patch", canvasId=name, ownerSessionKey="elsewhere"))
    assert refused.code == 400


# --- deleting, opening and acting ---------------------------------------------------------------------------


@rule("RS-67", "CV-45")
async def test_deleting_answers_the_same_for_a_missing_and_a_foreign_canvas(
    client: GatewayClient, easel: LiveEasel, canvas: str
) -> None:
    foreign = new_session()
    easel.sql(
        "insert into accounts (account_id, kind, name) values ('ann', 'person', 'ann') on conflict do nothing"
    )
    easel.sql(
        "insert into canvases (account_id, canvas_id, agent_id, title, spec, state) "
        f"values ('ann', '{foreign}', 'main', 'Foreign', '{{}}', '{{}}')"
    )
    for name in (foreign, new_session(), "not a name"):
        answer = await client.call("canvas.delete", canvasId=name, expectedRevision=7)
        assert answer == {"ok": True, "canvasId": name, "deleted": False}
    assert easel.sql(f"select title from canvases where canvas_id = '{foreign}'")
    stale = await refusal_of(client.call("canvas.delete", canvasId=canvas, expectedRevision=7))
    assert stale.code == 409
    assert (await client.call("canvas.delete", canvasId=canvas, agentId="main"))["deleted"] is True
    assert (await client.call("canvas.delete", canvasId=canvas))["deleted"] is False


@rule("RS-67", "CV-35")
async def test_view_has_the_client_id_that_the_client_names(client: GatewayClient, canvas: str) -> None:
    target = {"kind": "web-client", "id": "web-1"}
    first = await client.call("canvas.open", canvasId=canvas, clientId="web-1", target=target)
    second = await client.call("canvas.open", canvasId=canvas, clientId="web-2")
    views = (await client.call("canvas.get", canvasId=canvas))["views"]
    assert {view["viewId"]: view["clientId"] for view in views} == {
        first["viewId"]: "web-1",
        second["viewId"]: "web-2",
    }
    closed = await client.call("canvas.close", canvasId=canvas, clientId="web-1", target=target)
    assert (closed["ok"], closed["closed"]) == (True, [first["viewId"]])
    for bad in ("", "a\nb", "x" * 129):
        assert (await refusal_of(client.call("canvas.open", canvasId=canvas, clientId=bad))).code == 400


@rule("RS-67", "CV-36")
async def test_ok_of_an_action_is_true_only_if_it_completed(client: GatewayClient) -> None:
    name = new_session()
    go = {"kind": "state.patch", "patch": [add("x", 2)]}
    await client.call("canvas.create", canvasId=name, spec={"actions": {**ASK["actions"], "go": go}})
    done = await client.call("canvas.action", canvasId=name, actionId="go")
    assert (done["ok"], done["status"]) == (True, "completed")
    asked = await client.call("canvas.action", canvasId=name, actionId="ask", agentId="main")
    assert (asked["ok"], asked["status"]) == (False, "needs_confirmation")
    refused = await client.call("canvas.confirm", confirmationId=asked["confirmationId"], approve=False)
    assert (refused["ok"], refused["status"]) == (False, "refused")
    assert (await client.call("canvas.get", canvasId=name))["state"] == {"x": 2}


# --- methods that Easel does not have -----------------------------------------------------------------------


@rule("RS-67")
@pytest.mark.parametrize(
    "method, instead",
    [
        ("chat.send", "POST /api/chat/{session_id}"),
        ("sessions.list", "GET /api/sessions"),
        ("session.stats", "GET /api/sessions/{session_id}"),
        ("config.get", "/api/settings"),
        ("cron.status", "refresh job"),
        ("logs.get", "gsv__LogsGet"),
        ("canvas.lst", "did you mean canvas.list?"),
        ("canvas.Subscribe", "did you mean canvas.subscribe?"),
        ("workspace.list", "There is no method workspace.list."),
    ],
)
async def test_method_that_easel_lacks_is_refused_with_what_it_has_instead(
    client: GatewayClient, method: str, instead: str
) -> None:
    refused = await refusal_of(client.call(method, sessionKey="agent:main:main"))
    assert (refused.code, method in refused.error["message"]) == (404, True)
    assert instead in refused.error["message"]
    assert method not in client.hello["features"]["methods"]
