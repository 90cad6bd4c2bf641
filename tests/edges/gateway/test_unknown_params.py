"""Unknown members of params and frames on the gateway: ignored with warnings, or refused."""

from __future__ import annotations

from tests.edges.gateway.canvas_calls import refusal_of
from tests.edges.gateway.node_peer import NodePeer, call_tool
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import rule
from tests.support.gateway import GatewayClient

COLOUR = "unknown member `colour` was ignored."


@rule("RS-67", "CV-33")
async def test_misspelt_revision_is_refused_and_nothing_is_written(
    client: GatewayClient, canvas: str
) -> None:
    for name in ("expectedRevison", "expected_revision", "expectedVersion"):
        refused = await refusal_of(client.call("canvas.patch", canvasId=canvas, title="Lost", **{name: 99}))
        assert refused.code == 400
        assert "did you mean `expectedRevision`?" in refused.error["message"]
    call = client.call("canvas.action", canvasId=canvas, actionId="add", idempotencyKey="k")
    assert "did you mean `requestId`?" in (await refusal_of(call)).error["message"]
    got = await client.call("canvas.get", canvasId=canvas)
    assert got["descriptor"]["title"] == "Cockpit"


@rule("RS-67")
async def test_unknown_params_are_ignored_and_named(client: GatewayClient, canvas: str) -> None:
    listed = await client.call("canvas.list", colour="red")
    assert listed["warnings"] == [COLOUR]
    assert canvas in {one["canvasId"] for one in listed["canvases"]}
    assert "warnings" not in await client.ask("canvas.list", None), "null is empty"
    subscribed = await client.call("canvas.subscribe", canvasId=canvas, colour="red")
    assert subscribed == {"canvasId": canvas, "subscribed": True, "warnings": [COLOUR]}
    ended = await client.call("canvas.unsubscribe", canvasId=canvas, colour="red")
    assert ended["warnings"] == [COLOUR]


@rule("RS-67")
async def test_warnings_of_params_follow_those_of_the_spec(client: GatewayClient, canvas: str) -> None:
    spec = {
        "version": 1,
        "mode": "html",
        "toolPolicy": {"allow": ["none__Such"]},
        "actions": {"go": {"kind": "tool.call", "tool": "none__Such", "args": {}}},
    }
    own = (await client.call("canvas.patch", canvasId=canvas, spec=spec))["warnings"]
    assert own
    written = await client.call("canvas.patch", canvasId=canvas, spec=spec, colour="red")
    assert written["warnings"] == [*own, COLOUR]
    refused = await refusal_of(client.call("canvas.patch", canvasId=canvas, spec={**spec, "colour": 1}))
    assert "colour" in refused.error["message"], "specs stay strict"


@rule("RS-67")
async def test_warnings_are_in_the_details_of_an_error_too(client: GatewayClient) -> None:
    missing = await refusal_of(client.call("canvas.get", canvasId=new_session(), colour="red"))
    assert (missing.code, missing.details["warnings"]) == (404, [COLOUR])
    unnamed = await refusal_of(client.call("canvas.get", canvas_id="x"))
    assert "missing required field `canvasId`" in unnamed.error["message"]
    assert "did you mean `canvasId`?" in unnamed.error["message"]


@rule("RS-67")
async def test_unknown_members_of_a_frame_are_named(client: GatewayClient) -> None:
    request = {"type": "req", "id": "x1", "method": "canvas.list"}
    await client.send({**request, "parms": {}})
    answer = await client.stray()
    assert answer["payload"]["warnings"] == ["unknown member `parms` was ignored; did you mean `params`?"]
    await client.send({**request, "params": None, "expectedRevision": 1})
    answer = await client.stray()
    assert (answer["id"], answer["error"]["code"]) == ("x1", 400)


@rule("RS-67")
async def test_unknown_members_of_connect_are_named(small_easel: LiveEasel) -> None:
    async with GatewayClient.open(small_easel.base_url, small_easel.token) as client:
        hello = await client.connect(new_session(), colour="red")
        assert hello["warnings"] == [COLOUR]


@rule("RS-67")
async def test_unknown_members_of_a_result_are_named_in_its_receipt(small_easel: LiveEasel) -> None:
    async with NodePeer.connected(small_easel, f"node-{new_session()}") as node:
        call = call_tool(small_easel, f"{node.node_id}__Echo", {"a": 1})
        call_id = (await node.receive_call())["callId"]
        receipt = await node.answer(call_id, result={"a": 1}, colour="red")
        assert receipt == {"ok": True, "warnings": [COLOUR]}
        assert await call == {"a": 1}
