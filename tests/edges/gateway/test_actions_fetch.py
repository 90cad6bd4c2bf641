"""Canvases and agents that fetch pages, through the host: hosts, consent, secrets and records. RS-74"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from easel.host.canvases.drafts import Draft
from easel.ids import OWNER, RunId
from tests.edges.gateway.action_fixtures import expect_refusal, run_inside
from tests.edges.http.live import LiveEasel, new_session, script
from tests.fetch.web_server import WebServer, run_web_server
from tests.requirements import rule
from tests.support.gateway import GatewayClient
from tests.support.principals import agent_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

FETCH = "local__Fetch"
SECRET = "t0ken-of-the-api"


@pytest.fixture(scope="module")
def easel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    settings = {"fetch_private": "127.0.0.0/8", "secret_key": "k" * 32}
    with LiveEasel(tmp_path_factory.mktemp("easel"), settings=settings) as live:
        assert live.ask("PUT", "/api/secrets/API_TOKEN", json={"value": SECRET}).status_code == 204
        yield live


@pytest_asyncio.fixture
async def web() -> AsyncIterator[WebServer]:
    async with run_web_server() as served:
        yield served


def spec_of(web: WebServer) -> dict[str, Any]:
    def fetch(method: str, path: str, **args: Any) -> dict[str, Any]:
        url = f"http://127.0.0.1:{web.port}{path}"
        return {"kind": "tool.call", "tool": FETCH, "args": {"method": method, "url": url, **args}}

    return {
        "toolPolicy": {"allow": [FETCH], "hosts": [f"127.0.0.1:{web.port}"], "secrets": ["API_TOKEN"]},
        "state": {"repo": "a/b", "items": None},
        "actions": {
            "list": {
                **fetch("GET", "/items/{{state.repo}}", bearer={"$secret": "API_TOKEN"}),
                "saveAs": "items",
                "parse": "csv",
            },
            "send": fetch("POST", "/send", json={"items": {"$value": "state.repo"}}),
            "away": fetch("GET", "/away"),
        },
        "refresh": [{"id": "poll", "everyMs": 600_000, "action": "list", "enabled": False}],
    }


@rule("RS-74", "RS-45", "RS-66", "CV-48")
async def test_canvas_fetches_rows_without_asking_and_asks_before_it_sends(
    easel: LiveEasel, web: WebServer
) -> None:
    web.answer("/items/a%2Fb", f"id,echo\r\n1,{SECRET}\r\n".encode())
    web.answer("/send", b'{"ok": true}', Content_Type="application/json")
    web.answer("/away", status="302 Found", Location="http://localhost:1/")
    name = new_session()
    async with GatewayClient.connected(easel.base_url, easel.token, new_session()) as client:
        created = await client.call("canvas.create", canvasId=name, spec=spec_of(web))
        assert "warnings" not in created
        listed = await client.call("canvas.action", canvasId=name, actionId="list")
        rows = [{"id": "1", "echo": "[secret API_TOKEN]"}]
        assert listed["result"]["body"] == rows
        snapshot = await client.call("canvas.get", canvasId=name)
        assert snapshot["state"]["items"]["result"]["body"] == rows
        assert f"authorization: Bearer {SECRET}\r\n" in web.requests[0]

        asked = await client.call("canvas.action", canvasId=name, actionId="send")
        assert asked["status"] == "needs_confirmation"
        assert len(web.requests) == 1
        sent = await client.call("canvas.confirm", confirmationId=asked["confirmationId"], approve=True)
        assert sent["result"]["json"] == {"ok": True}
        assert web.requests[1].endswith('{"items":"a/b"}')

        refused = await expect_refusal(client.call("canvas.action", canvasId=name, actionId="away"))
        assert (refused.code, "does not list localhost:1" in str(refused)) == (403, True)

        web.answer("/items/a%2Fb", b"id,echo\r\n1\r\n")
        failed = await expect_refusal(client.call("canvas.action", canvasId=name, actionId="list"))
        assert "actions.list.parse: result.body: is not CSV: row 2 has 1 values" in str(failed)
        unchanged = await client.call("canvas.get", canvasId=name)
        assert unchanged["state"] == snapshot["state"]
        records = (await client.call("canvas.records", canvasId=name))["records"]
        assert [(record["actionId"], record["tool"], record["status"]) for record in records] == [
            ("list", FETCH, "failed"),
            ("away", FETCH, "failed"),
            ("send", FETCH, "completed"),
            ("list", FETCH, "completed"),
        ]
    assert SECRET not in easel.get("/api/audit?limit=200").text


@rule("RS-74", "RS-59")
async def test_canvas_of_an_agent_reaches_no_host_until_a_person_accepts(
    easel: LiveEasel, web: WebServer
) -> None:
    web.answer("/items/a%2Fb", b"id\r\n1\r\n")
    name, agent = new_session(), agent_of(OWNER, RunId("run_1"))
    spec = spec_of(web)
    spec["actions"]["own"] = {
        "kind": "tool.call",
        "tool": FETCH,
        "args": {"method": "GET", "url": "easel:/healthz"},
    }
    await run_inside(
        easel, easel.instances[0].services.canvases.create(agent, Draft(canvas_id=name, spec=spec))
    )
    async with GatewayClient.connected(easel.base_url, easel.token, new_session()) as client:
        for action in ("list", "send", "away"):
            refused = await expect_refusal(client.call("canvas.action", canvasId=name, actionId=action))
            assert (refused.code, "no person has accepted" in str(refused)) == (403, True)
        assert web.requests == []
        own = await client.call("canvas.action", canvasId=name, actionId="own")
        assert own["result"]["body"] == easel.get("/healthz").text
        revision = (await client.call("canvas.get", canvasId=name))["revision"]
        await client.call("canvas.accept", canvasId=name, revision=revision)
        listed = await client.call("canvas.action", canvasId=name, actionId="list")
        assert listed["result"]["body"] == [{"id": "1"}]


@rule("RS-74")
async def test_agent_fetches_the_hosts_of_the_setting_and_is_offered_the_tool_only_then(
    easel: LiveEasel, web: WebServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    web.answer("/", b"[1]", Content_Type="application/json")
    url = f"http://127.0.0.1:{web.port}/"
    message = script({"call": FETCH, "args": {"method": "GET", "url": url}})

    def fetch_as_agent(live: LiveEasel) -> str:
        run_id = live.finish(message, new_session())
        [result] = [event.data for event in live.events(run_id) if event.type == "tool.result"]
        return json.dumps(result)

    assert "EASEL_FETCH_HOSTS of this server does not list" in await asyncio.to_thread(fetch_as_agent, easel)
    settings = {"fetch_private": "127.0.0.0/8", "fetch_hosts": f"127.0.0.1:{web.port}"}
    with LiveEasel(tmp_path_factory.mktemp("easel"), settings=settings) as live:
        assert '"json": [1]' in await asyncio.to_thread(fetch_as_agent, live)
        assert live.do(live.instances[0].tools.definitions(OWNER))[FETCH].is_for_agents
    assert not easel.do(easel.instances[0].tools.definitions(OWNER))[FETCH].is_for_agents
    assert len(web.requests) == 1


@rule("RS-74")
async def test_person_invokes_a_read_of_a_host_that_the_setting_names(easel: LiveEasel) -> None:
    async with GatewayClient.connected(easel.base_url, easel.token, new_session()) as client:
        args = {"method": "GET", "url": "https://example.com/"}
        refused = await expect_refusal(client.call("tool.invoke", tool=FETCH, args=args))
        assert "EASEL_FETCH_HOSTS" in str(refused)
    [tool] = [tool for tool in easel.get("/api/tools?limit=200").json()["tools"] if tool["name"] == FETCH]
    assert tool["annotations"]["readOnlyHint"] is False
    assert set(tool["schema"]["properties"]) == {"method", "url", "headers", "json", "body", "bearer"}
