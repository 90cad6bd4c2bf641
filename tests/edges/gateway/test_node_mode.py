"""Node mode on `/ws`: connecting as a node, its offer and its messages, replacing and disconnecting it."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

import pytest

from easel import __version__
from easel.edges.gateway import connection
from easel.edges.methods import METHODS
from tests.edges.gateway.node_peer import SHELL, TOOLS, NodePeer, call_tool, new_tool, node_tool_names
from tests.edges.http.live import LiveEasel as Live
from tests.edges.http.live import new_session
from tests.requirements import case, rule
from tests.support.gateway import GatewayClient, Refused
from tests.support.standstill import Stopwatch
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.edges.http.live import LiveEasel

DEFAULT_HEARTBEAT_SECONDS = connection.NODE_HEARTBEAT_SECONDS
HEARTBEAT_SECONDS = 1.0


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    """On SQLite."""
    settings = {"poll_seconds": 0.1}
    with Live(tmp_path_factory.mktemp("easel"), with_worker=False, settings=settings) as live:
        yield live


@pytest.fixture
def short_heartbeat(small: LiveEasel, monkeypatch: pytest.MonkeyPatch) -> LiveEasel:
    """Closes silent connections soon: only for nodes that are meant to be closed."""
    monkeypatch.setattr(connection, "NODE_HEARTBEAT_SECONDS", HEARTBEAT_SECONDS)
    return small


async def refusal(
    easel: LiveEasel, node_id: str = "laptop", *, token: str | None = None, tools: Any = None, **params: Any
) -> Refused:
    async with GatewayClient.open(easel.base_url, token or easel.token) as client:
        with pytest.raises(Refused) as refused:
            await client.connect(
                node_id, **{"mode": "node", "tools": TOOLS if tools is None else tools, **params}
            )
        return refused.value


# --- connecting ---------------------------------------------------------------------------------------------


@rule("CV-03", "RS-44")
async def test_node_connects_and_its_tools_are_listed(easel: LiveEasel) -> None:
    name = new_session()
    async with (
        NodePeer.connected(easel, name) as node,
        GatewayClient.connected(easel.base_url, easel.token, new_session()) as client,
    ):
        hello = node.client.hello
        assert (hello["type"], hello["protocol"]) == ("hello-ok", 1)
        assert hello["features"] == {
            "methods": ["connect", "tool.progress", "tool.result"],
            "events": ["tool.cancel", "tool.invoke"],
        }
        assert hello["limits"] == {"frameBytes": 1_048_576, "resultBytes": 262_144}
        tools = {tool["name"]: tool for tool in (await client.call("tools.list"))["tools"]}
        assert tools[f"{name}__Bash"] == {
            "name": f"{name}__Bash",
            "description": "Does Bash.",
            "inputSchema": SHELL,
            "annotations": {"readOnlyHint": False, "idempotentHint": False, "destructiveHint": True},
        }
        assert tools[f"{name}__Echo"]["annotations"] == {
            "readOnlyHint": True,
            "idempotentHint": True,
            "destructiveHint": False,
        }
        listed = {tool["name"]: tool["runs_on"] for tool in easel.get("/api/tools").json()["tools"]}
        assert (listed[f"{name}__Bash"], listed["gsv__Echo"]) == (name, "server")
        nodes = (await client.call("nodes.list"))["nodes"]
        [listed_node] = [node for node in nodes if node["nodeId"] == name]
        assert listed_node == {
            "nodeId": name,
            "platform": "test",
            "version": "1",
            "connectedAt": listed_node["connectedAt"],
            "tools": [f"{name}__Echo", f"{name}__Bash"],
        }
        assert easel.post("/api/rpc", {"method": "nodes.list"}).json() == await client.call("nodes.list")
    await wait_for(lambda: _has_no_tools(easel, name))


@rule("RS-61")
@pytest.mark.parametrize(
    "bash, status", [("off", "off (EASEL_BASH=off)."), ("auto", "on, WITHOUT isolation")]
)
async def test_server_is_listed_as_a_node_with_the_status_of_its_shell(
    tmp_path: Path, bash: str, status: str
) -> None:
    with Live(
        tmp_path, with_worker=False, settings={"bash": bash, "sandbox_mode": "logical", "sandbox_free_mb": 0}
    ) as easel:
        [local] = easel.post("/api/rpc", {"method": "nodes.list"}).json()["nodes"]
        tools = easel.post("/api/rpc", {"method": "tools.list"}).json()["tools"]
    offered = [tool["name"] for tool in tools if tool["name"].startswith("local__")]
    assert ("local__Bash" in offered) == (bash == "auto")
    assert sorted(local.pop("tools")) == sorted(offered)
    assert local.pop("bash").startswith(status)
    assert local == {"nodeId": "local", "platform": platform.system().lower(), "version": __version__}


async def _has_no_tools(easel: LiveEasel, name: str) -> bool:
    return not any(tool.startswith(f"{name}__") for tool in await node_tool_names(easel))


@pytest.mark.parametrize("node_id", ["gsv", "a__b", ""])
async def test_invalid_node_id_is_refused(small: LiveEasel, node_id: str) -> None:
    """Bug 7 of GSV: a node `gsv` replaced native tools, and the tools of a node `a__b` were unreachable."""
    refused = await refusal(small, node_id)
    assert (refused.code, str(refused.error["message"]).startswith("client.id")) == (400, True)
    assert await node_tool_names(small) == set()


@rule("RS-44")
@case("R7")
async def test_invalid_offer_is_refused(small: LiveEasel) -> None:
    def of(**schema: Any) -> list[dict[str, Any]]:
        return [new_tool(schema={"type": "object", "properties": {"a": schema}})]

    for tools, code, part in (
        (of(type="strin"), 400, "properties/a/type"),
        (of(pattern="(?=a)b"), 400, "pattern"),  # not matched in linear time
        ([new_tool(description="x y " * 20_000)], 413, "tools[0]"),
    ):
        refused = await refusal(small, tools=tools)
        assert (refused.code, part in refused.error["message"]) == (code, True)
    assert await node_tool_names(small) == set()


WRONG_MODES = [
    ({"mode": "channel"}, 103),
    ({"mode": "Node"}, 103),
    ({"mode": "node", "tools": []}, 103),
    ({"mode": "node", "tools": {}}, 103),
    ({"mode": "node", "minProtocol": 2, "maxProtocol": 3}, 102),
]


@pytest.mark.parametrize("params, code", WRONG_MODES)
async def test_unknown_mode_and_node_without_tools_are_refused(
    small: LiveEasel, params: dict[str, Any], code: int
) -> None:
    assert (await refusal(small, **{"tools": TOOLS, **params})).code == code


# --- tokens -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["user", "node"])
async def test_tokens_of_a_person_and_of_a_node_can_connect_as_a_node(easel: LiveEasel, kind: str) -> None:
    _, secret = easel.new_token(kind)
    name = new_session()
    async with NodePeer.connected(easel, name, token=secret) as node:
        call = call_tool(easel, f"{name}__Echo", {"a": 1})
        await node.echo_next_call()
        assert await call == {"a": 1}


async def test_kind_of_a_token_decides_the_mode(small: LiveEasel) -> None:
    """In the frame, and in the header."""
    _, service = small.new_token("service")
    _, node = small.new_token("node")
    assert (await refusal(small, token=service)).code == 103
    assert (await refusal(small, token=node, mode="client")).code == 103
    async with GatewayClient.open(small.base_url, None) as client:
        with pytest.raises(Refused) as refused:
            await client.connect("laptop", mode="client", token=node)
        assert refused.value.code == 103
    async with GatewayClient.connected(small.base_url, service) as client:
        await client.call("tools.list")


@rule("RS-68")
async def test_token_of_one_node_cannot_replace_another_node(small: LiveEasel) -> None:
    """The guide's command gives a token for `laptop`; it must not become `server-a`."""
    _, secret = small.new_token("node", name="laptop")
    async with NodePeer.connected(small, "server-a") as real:
        refused = await refusal(small, "server-a", token=secret)
        assert (refused.code, refused.error["name"]) == (403, "FORBIDDEN")
        assert "bound to the node laptop" in str(refused)
        assert "easel token create --kind node --name server-a" in str(refused)
        call = call_tool(small, "server-a__Echo", {"a": 1})
        await real.echo_next_call()
        assert await call == {"a": 1}, "the connected node was not replaced"


@rule("RS-68")
async def test_unbound_token_is_bound_by_its_first_connection(small: LiveEasel) -> None:
    token_id, secret = small.new_token("node", name="my old laptop")
    broken = await refusal(small, "desktop", token=secret, tools=[{"name": "no schema"}])
    assert broken.code == 400
    for _ in range(2):
        async with NodePeer.connected(small, "laptop", token=secret):
            pass
        assert (await refusal(small, "desktop", token=secret)).code == 403
    [token] = small.sql(f"select node_id from tokens where token_id = '{token_id}'")
    assert token["node_id"] == "laptop"


@pytest.mark.parametrize("kind", ["node", "owner"])
async def test_node_cannot_call_any_method_of_a_client(small: LiveEasel, kind: str) -> None:
    """The mode of the connection limits it, whatever its token allows in client mode."""
    token = small.new_token("node")[1] if kind == "node" else None
    async with NodePeer.connected(small, "laptop", token=token) as node:
        for method in sorted({*METHODS, "canvas.subscribe", "canvas.unsubscribe", "canvas.dance"}):
            refused = await node.client.refusal(method, {"canvasId": "cockpit"})
            assert refused is not None, method
            assert (refused.code, refused.error["name"]) == (103, "NOT_IN_MODE"), method
        again = await node.client.refusal("connect", {})
        assert again is not None
        assert again.code == 400


@case("X5")
@pytest.mark.parametrize("method", ["tool.result", "tool.progress"])
async def test_client_cannot_answer_a_call_to_a_node(small: LiveEasel, method: str) -> None:
    """Bug 8 of GSV: any connection could send `tool.result` for any call."""
    async with (
        NodePeer.connected(small, "laptop") as node,
        GatewayClient.connected(small.base_url, small.token) as client,
    ):
        call = call_tool(small, "laptop__Echo")
        asked = await node.receive_call()
        refused = await client.refusal(method, {"callId": asked["callId"], "result": "forged"})
        assert refused is not None
        assert (refused.code, refused.error["name"]) == (103, "NOT_IN_MODE")
        assert (
            small.post(
                "/api/rpc", {"method": method, "params": {"callId": asked["callId"], "result": "forged"}}
            ).status_code
            == 400
        )
        await node.answer(asked["callId"], result="true")
        assert await call == "true"


@case("O9")
async def test_revoking_a_token_closes_its_connections_and_no_others(small: LiveEasel) -> None:
    revoked_id, revoked = small.new_token("node")
    _, other = small.new_token("node")
    async with (
        NodePeer.connected(small, "one", token=revoked) as node,
        NodePeer.connected(small, "two", token=other) as of_other,
        NodePeer.connected(small, "three") as of_owner,
    ):
        call = call_tool(small, "one__Echo")
        await node.receive_call()
        small.revoke_token(revoked_id)
        assert await node.client.closed() == (1008, "Signed out.")
        with pytest.raises(Exception, match="disconnected"):
            await call
        for other_node in (of_other, of_owner):
            call = call_tool(small, f"{other_node.node_id}__Echo")
            await other_node.echo_next_call()
            await call
    refused = await refusal(small, "one", token=revoked)
    assert refused.code == 401


# --- reconnecting and disconnecting -------------------------------------------------------------------------


async def test_node_that_reconnects_replaces_its_older_connection(easel: LiveEasel) -> None:
    name = new_session()
    async with NodePeer.connected(easel, name) as older:
        call = call_tool(easel, f"{name}__Echo")
        await older.receive_call()
        async with NodePeer.connected(easel, name, tools=[new_tool("New")]) as newer:
            with pytest.raises(Exception, match="disconnected"):
                await call
            assert await older.client.closed() == (1000, "Replaced by a newer connection")
            assert await node_tool_names(easel) == {f"{name}__New"}
            for _ in range(3):
                call = call_tool(easel, f"{name}__New")
                await newer.echo_next_call()
                await call
            async with NodePeer.connected(easel, name) as newest:
                assert (await newer.client.closed())[0] == 1000, (
                    "the late end of the oldest did not remove it"
                )
                call = call_tool(easel, f"{name}__Echo")
                await newest.echo_next_call()
                await call


async def test_nodes_of_two_users_with_the_same_id_are_separate(easel: LiveEasel) -> None:
    name = new_session()
    easel.add_person(f"u-{name}")
    _, secret = easel.new_token("user", f"u-{name}")
    async with (
        NodePeer.connected(easel, name) as mine,
        NodePeer.connected(easel, name, token=secret, tools=[new_tool("Theirs")]) as theirs,
        GatewayClient.connected(easel.base_url, secret, new_session()) as their_client,
    ):
        assert await node_tool_names(easel) == {f"{name}__Echo", f"{name}__Bash"}
        assert await node_tool_names(easel, user=f"u-{name}") == {f"{name}__Theirs"}
        [local, listed] = (await their_client.call("nodes.list"))["nodes"]
        assert local["nodeId"] == "local", "the server is available to every user"
        assert listed["tools"] == [f"{name}__Theirs"]
        with pytest.raises(Exception, match="no such tool"):
            await call_tool(easel, f"{name}__Theirs")
        call = call_tool(easel, f"{name}__Theirs", user=f"u-{name}")
        await theirs.echo_next_call()
        await call
        assert mine.client.unheard == 0


@case("R4")
async def test_silent_connection_is_closed_after_the_heartbeat(short_heartbeat: LiveEasel) -> None:
    """As if a cable was pulled, or the machine sleeps: no pong and no close."""
    async with NodePeer.connected(short_heartbeat, "laptop") as node:
        call = call_tool(short_heartbeat, "laptop__Echo")
        await node.receive_call()
        node.client.socket.transport.pause_reading()
        silence = Stopwatch()
        with pytest.raises(Exception, match="disconnected"):
            await call
        assert silence.seconds < DEFAULT_HEARTBEAT_SECONDS, "with the default it takes longer"
        assert await node_tool_names(short_heartbeat) == set()


async def test_connecting_and_disconnecting_is_audited(small: LiveEasel) -> None:
    async with NodePeer.connected(small, "audited"):
        pass

    async def is_recorded() -> bool:
        records = small.get("/api/audit").json()["records"]
        return {("node.connected", "audited"), ("node.disconnected", "audited")} <= {
            (record["action"], record.get("subject")) for record in records
        }

    await wait_for(is_recorded)
