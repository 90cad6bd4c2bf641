"""`tool.invoke`: a person calls a tool without a canvas, under policy and with a record. RS-67"""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tests.edges.gateway.action_fixtures import audit_records
from tests.edges.gateway.canvas_calls import refusal_of
from tests.edges.gateway.node_peer import NodePeer
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import case, rule
from tests.support.gateway import GatewayClient
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from tests.edges.gateway.action_fixtures import ControlledTools

UI = Path(__file__).parents[3] / "src/easel/ui"


def invoke(client: GatewayClient, tool: str, **args: Any) -> Any:
    return client.call("tool.invoke", tool=tool, args=args)


@rule("RS-67")
async def test_person_calls_a_tool_of_easel_and_of_a_node(client: GatewayClient, easel: LiveEasel) -> None:
    assert await invoke(client, "gsv__Echo", value={"a": [1]}) == {"ok": True, "result": {"a": [1]}}
    assert set((await client.call("tool.invoke", tool="gsv__Clock"))["result"]) == {"now"}, (
        "args are optional"
    )
    node_id = new_session()
    async with NodePeer.connected(easel, node_id) as node:
        calling = asyncio.create_task(invoke(client, f"{node_id}__Echo", a=1))
        await node.echo_next_call()
        assert await calling == {"ok": True, "result": {"a": 1}}
        failing = asyncio.create_task(invoke(client, f"{node_id}__Bash", command="false"))
        await node.answer((await node.receive_call())["callId"], error="it broke")
        refused = await refusal_of(failing)
        assert (refused.code, refused.error["name"]) == (500, "TOOL_FAILED")
        assert "it broke" in refused.error["message"]

    def is_recorded() -> bool:
        bash = audit_records(easel, "tool.invoked", f"{node_id}__Bash")
        return [record["details"]["status"] for record in bash] == ["failed"]

    await wait_for(is_recorded, what="the record")
    [echo] = audit_records(easel, "tool.invoked", f"{node_id}__Echo")
    assert (echo["details"], echo["actor"]["kind"]) == ({"status": "completed"}, "person"), "no arguments"


@rule("RS-67")
async def test_call_is_cancelled_with_its_connection(easel: LiveEasel) -> None:
    node_id = new_session()
    async with NodePeer.connected(easel, node_id) as node:
        async with GatewayClient.connected(easel.base_url, easel.token, new_session()) as client:
            calling = asyncio.create_task(invoke(client, f"{node_id}__Echo"))
            call = await node.receive_call()
        assert await node.receive_cancel() == call["callId"]
        await asyncio.gather(calling, return_exceptions=True)
    await wait_for(
        lambda: (
            [
                record["details"]["status"]
                for record in audit_records(easel, "tool.invoked", f"{node_id}__Echo")
            ]
            == ["cancelled"]
        ),
        what="the record",
    )


@rule("RS-67")
@pytest.mark.parametrize(
    "params, code",
    [
        ({"tool": "gsv__NoSuch"}, 404),
        ({"tool": "Echo"}, 404),
        ({"tool": "__proto__"}, 404),
        ({"tool": "gsv__Echo", "args": {}}, 400),
        ({"tool": "gsv__Echo", "args": [1]}, 400),
        ({"args": {"value": 1}}, 400),
    ],
)
async def test_wrong_call_is_refused(client: GatewayClient, params: dict[str, Any], code: int) -> None:
    assert (await refusal_of(client.ask("tool.invoke", params))).code == code


@rule("RS-67", "RS-59")
@case("X5")
async def test_only_a_person_may_call_a_tool_directly(
    action_easel: LiveEasel, tools: ControlledTools
) -> None:
    count = len(tools.act.calls)
    _, secret = action_easel.new_token("service")
    async with GatewayClient.connected(action_easel.base_url, secret, new_session()) as service:
        refused = await refusal_of(invoke(service, tools.act.name))
    assert (refused.code, refused.error["name"]) == (403, "FORBIDDEN")
    assert len(tools.act.calls) == count


@rule("RS-67", "SB-01")
@pytest.mark.parametrize("mode, allowed", [("minimal", []), ("trusted", ["gsv__Echo"])])
async def test_server_that_asks_before_a_tool_refuses_a_direct_call(
    tmp_path: Path, mode: str, allowed: list[str]
) -> None:
    with LiveEasel(tmp_path, with_worker=False, settings={"approval_mode": mode}) as live:
        async with GatewayClient.connected(live.base_url, live.token) as client:
            for tool, args in (("gsv__Echo", {"value": 1}), ("gsv__Canvas", {"operation": "list"})):
                if tool in allowed:
                    assert (await invoke(client, tool, **args))["result"] == 1
                else:
                    refused = await refusal_of(invoke(client, tool, **args))
                    assert (refused.code, "EASEL_APPROVAL_MODE" in refused.error["message"]) == (403, True)


@rule("RS-67", "RS-59")
async def test_canvas_written_by_a_direct_call_is_not_accepted(client: GatewayClient) -> None:
    name = new_session()
    await invoke(client, "gsv__Canvas", operation="upsert", canvasId=name, spec={"version": 1})
    assert (await client.call("canvas.get", canvasId=name))["accepted"] is False


@rule("RS-67")
@case("X5")
def test_shell_of_a_canvas_page_never_sends_a_direct_call() -> None:
    """The browser test of the bridge sends the forged message; here no script of Easel knows the method."""
    scripts = [script.name for script in UI.glob("*.js") if "tool.invoke" in script.read_text()]
    assert scripts == []


@rule("RS-67")
async def test_direct_call_works_over_http(easel: LiveEasel) -> None:
    body = {"method": "tool.invoke", "params": {"tool": "gsv__Echo", "args": {"value": 2}}}
    assert easel.post("/api/rpc", body).json() == {"ok": True, "result": 2}


@rule("RS-67", "RS-66")
async def test_arguments_are_data_and_null_is_empty(client: GatewayClient) -> None:
    value = {"$secret": "X", "a": {"$value": "state.a"}, "b": {"$literal": "{{state.b}}"}}
    assert (await invoke(client, "gsv__Echo", value=value))["result"] == value
    assert (await client.call("tool.invoke", tool="gsv__Clock", args=None))["ok"] is True


@rule("RS-67")
async def test_call_over_http_is_cancelled_when_the_client_disconnects(easel: LiveEasel) -> None:
    node_id = new_session()
    body = json.dumps({"method": "tool.invoke", "params": {"tool": f"{node_id}__Echo"}})
    headers = {**easel.bearer, "host": easel.base_url.partition("//")[2], "content-length": str(len(body))}
    request = ["POST /api/rpc HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", body]
    async with NodePeer.connected(easel, node_id) as node:
        with closing(socket.create_connection(address_of(easel))) as connection:
            connection.sendall("\r\n".join(request).encode())
            call = await node.receive_call()
        assert await node.receive_cancel() == call["callId"]


@rule("RS-67", "RS-59")
async def test_call_over_http_is_cancelled_when_the_person_signs_out(easel: LiveEasel) -> None:
    node_id = new_session()
    body = {"method": "tool.invoke", "params": {"tool": f"{node_id}__Echo"}}
    async with NodePeer.connected(easel, node_id) as node:
        with easel.stranger() as browser:
            await asyncio.to_thread(browser.get, "/", params={"token": easel.token})
            calling = asyncio.create_task(asyncio.to_thread(browser.post, "/api/rpc", json=body))
            call = await node.receive_call()
            await asyncio.to_thread(browser.post, "/sign-out")
            assert await node.receive_cancel() == call["callId"]
            assert (await calling).status_code == 401


def address_of(easel: LiveEasel) -> tuple[str, int]:
    url = urlsplit(easel.base_url)
    return url.hostname or "", url.port or 0
