"""Node mode on `/ws`: who may be a node, what it may offer and say, and how it goes away."""

from __future__ import annotations

import asyncio
import json
import platform
from typing import TYPE_CHECKING, Any

import pytest

from easel import __version__
from easel.edges.methods import METHODS
from easel.host.auth.tokens import Tokens
from easel.settings import Settings
from tests.edges.gateway.node_peer import ANY, SHELL, TOOLS, NodePeer, a_tool, names_of, using
from tests.edges.http.live import LiveEasel as Live
from tests.edges.http.live import new_session
from tests.requirements import case, rule
from tests.support.gateway import WAIT_SECONDS, GatewayClient, Refused
from tests.support.standstill import Stopwatch
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.edges.http.live import LiveEasel

HEARTBEAT_SECONDS = 1.0


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    """On SQLite, with small limits."""
    settings = {
        "max_node_tools": 5,
        "max_tool_bytes": 4_000,
        "max_nodes": 3,
        "poll_seconds": 0.1,
    }
    with Live(tmp_path_factory.mktemp("easel"), with_worker=False, settings=settings) as live:
        yield live


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    """Gives up soon what does not say that it is there: only for nodes that are meant to be given up."""
    with Live(
        tmp_path_factory.mktemp("easel"),
        with_worker=False,
        settings={"node_heartbeat_seconds": HEARTBEAT_SECONDS},
    ) as live:
        yield live


def token_for(easel: LiveEasel, kind: str, **given: Any) -> tuple[str, str]:
    """A new token's id, and the token."""
    instance = easel.instances[0]
    made, secret = easel.do(
        Tokens(instance.opened.tokens, instance.services.audit).create("owner", kind, **given)
    )
    return made.token_id, secret


async def refusal(
    easel: LiveEasel, node_id: str = "laptop", *, token: str | None = None, tools: Any = None, **changed: Any
) -> Refused:
    async with GatewayClient.open(easel.base_url, token or easel.token) as client:
        with pytest.raises(Refused) as refused:
            await client.connect(
                node_id, **{"mode": "node", "tools": TOOLS if tools is None else tools, **changed}
            )
        return refused.value


# --- coming -------------------------------------------------------------------------------------------------


@rule("CV-03", "RS-44")
async def test_a_node_is_greeted_and_its_tools_are_there_for_everyone(easel: LiveEasel) -> None:
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
        [seen] = [one for one in (await client.call("nodes.list"))["nodes"] if one["nodeId"] == name]
        assert seen == {
            "nodeId": name,
            "platform": "test",
            "version": "1",
            "connectedAt": seen["connectedAt"],
            "tools": [f"{name}__Echo", f"{name}__Bash"],
        }
        assert easel.post("/api/rpc", {"method": "nodes.list"}).json() == await client.call("nodes.list")
    await wait_for(lambda: _is_gone(easel, name))


@rule("RS-61")
@pytest.mark.parametrize("bash, says", [("off", "off (EASEL_BASH=off)."), ("auto", "on, WITHOUT isolation")])
async def test_the_server_is_listed_as_a_node_that_says_whether_it_runs_commands(
    tmp_path: Path, bash: str, says: str
) -> None:
    with Live(
        tmp_path, with_worker=False, settings={"bash": bash, "sandbox_mode": "logical", "sandbox_free_mb": 0}
    ) as easel:
        [local] = easel.post("/api/rpc", {"method": "nodes.list"}).json()["nodes"]
        tools = easel.post("/api/rpc", {"method": "tools.list"}).json()["tools"]
    offered = [tool["name"] for tool in tools if tool["name"].startswith("local__")]
    assert ("local__Bash" in offered) == (bash == "auto")
    assert sorted(local.pop("tools")) == sorted(offered)
    assert local.pop("bash").startswith(says)
    assert local == {"nodeId": "local", "platform": platform.system().lower(), "version": __version__}


async def _is_gone(easel: LiveEasel, name: str) -> bool:
    return not any(tool.startswith(f"{name}__") for tool in await names_of(easel))


@pytest.mark.parametrize(
    "node_id",
    [
        "gsv",
        "GSV",
        "local",
        "Local",
        "a__b",
        "__a",
        "a_",
        "a__",
        "",
        "-a",
        " a",
        "a b",
        "a/b",
        "ü",
        "x" * 129,
    ],
)
async def test_a_name_that_a_tool_could_be_mistaken_by_is_refused(small: LiveEasel, node_id: str) -> None:
    """Bug 7 of GSV: a node could call itself `gsv` and shadow native tools, and with `__` in its id its tools were out of reach."""
    refused = await refusal(small, node_id)
    assert (refused.code, str(refused.error["message"]).startswith("client.id")) == (400, True)
    assert await names_of(small) == set()


BOMB = {
    "type": "object",
    "$defs": {
        "a0": {"type": "string"},
        **{f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n - 1}"}] * 2} for n in range(1, 25)},
    },
    "properties": {"x": {"$ref": "#/$defs/a24"}},
}
LOOP = {"type": "object", "properties": {"x": {"$ref": "#/properties/x"}}}
OFFERS: list[tuple[str, Any, int, str]] = [
    # says                                  what is offered                                                         code  the message has
    ("an object", {"Echo": {}}, 400, "tools"),
    ("a tool that is none", ["Echo"], 400, "tools[0]"),
    ("a tool without a name", [{"inputSchema": ANY}], 400, "tools[0].name"),
    ("a name with a space", [a_tool("Ec ho")], 400, "tools[0].name"),
    ("a name of another alphabet", [a_tool("Еcho")], 400, "tools[0].name"),
    ("a name with a line feed", [a_tool("Echo\n")], 400, "tools[0].name"),
    ("a long name", [a_tool("x" * 65)], 400, "tools[0].name"),
    ("the same name twice", [a_tool(), a_tool()], 400, "tools[1].name"),
    ("no schema", [{"name": "Echo"}], 400, "tools[0].inputSchema"),
    ("a schema that is none", [a_tool(schema="object")], 400, "tools[0].inputSchema"),
    (
        "a type that is none",
        [a_tool(schema={"type": "object", "properties": {"a": {"type": "strin"}}})],
        400,
        "properties/a/type",
    ),
    ("arguments without names", [a_tool(schema={"type": "array"})], 400, "type"),
    (
        "a schema from elsewhere",
        [a_tool(schema={"type": "object", "$ref": "http://127.0.0.1:1/x"})],
        400,
        "outside the schema",
    ),
    (
        "a file",
        [a_tool(schema={"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}})],
        400,
        "outside the schema",
    ),
    (
        "an identity of its own",
        [a_tool(schema={"type": "object", "$id": "http://127.0.0.1:1/x"})],
        400,
        "$id",
    ),
    (
        "a dialect of its own",
        [a_tool(schema={"type": "object", "$schema": "http://127.0.0.1:1/x"})],
        400,
        "$schema",
    ),
    (
        "a reference to nothing",
        [a_tool(schema={"type": "object", "allOf": [{"$ref": "#/$defs/x"}]})],
        400,
        "refers to nothing",
    ),
    ("a schema without end", [a_tool(schema=LOOP)], 400, "refers to itself"),
    ("a schema that takes for ever", [a_tool(schema=BOMB)], 400, "parts"),
    (
        "a pattern that takes for ever",
        [a_tool(schema={"type": "object", "properties": {"a": {"pattern": "(?=a)b"}}})],
        400,
        "pattern",
    ),
    (
        "a shell that is not sure",
        [a_tool(schema={"type": "object", "properties": {"a": {"x-shell": "true"}}})],
        400,
        "x-shell",
    ),
    (
        "a hint that is no flag",
        [a_tool(annotations={"readOnlyHint": "yes"})],
        400,
        "annotations.readOnlyHint",
    ),
    ("a hint that is misspelt", [a_tool(annotations={"readOnly": True})], 400, "annotations.readOnly"),
    ("a member that is not known", [a_tool(schemas={})], 400, "tools[0].schemas"),
    (
        "deep nesting",
        [a_tool(schema={"type": "object", "default": json.loads("[" * 120 + "]" * 120)})],
        400,
        "deeper",
    ),
    ("a large definition", [a_tool(description="x y " * 2_000)], 413, "tools[0]"),
    ("Base64 in it", [a_tool(description="iVBORw0KGgo" * 300)], 400, "Base64"),
    ("many tools", [a_tool(f"Echo{n}") for n in range(6)], 400, "5 is the limit"),
]


@rule("RS-44")
@case("R7")
@pytest.mark.parametrize("says, tools, code, part", OFFERS, ids=[row[0] for row in OFFERS])
async def test_an_offer_is_read_strictly(
    small: LiveEasel, says: str, tools: Any, code: int, part: str
) -> None:
    refused = await refusal(small, tools=tools)
    assert refused.code == code
    assert part in refused.error["message"]
    assert await names_of(small) == set(), "nothing of it is there"


async def test_a_schema_may_refer_to_its_own_parts(small: LiveEasel) -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "$defs": {"a/b": {"type": "integer"}},
        "properties": {"x": {"$ref": "#/$defs/a~1b"}, "$id": {"type": "string"}},
    }
    async with NodePeer.connected(small, "laptop", tools=[a_tool(schema=schema)]) as node:
        using_it = using(small, "laptop__Echo", {"x": 1})
        await node.echo_one()
        assert await using_it == {"x": 1}
        with pytest.raises(Exception, match="integer"):
            await using(small, "laptop__Echo", {"x": "1"})


WRONG_MODES = [
    ({"mode": "channel"}, 103),
    ({"mode": "Node"}, 103),
    ({"mode": "node", "tools": []}, 103),
    ({"mode": "node", "tools": {}}, 103),
    ({"mode": "node", "minProtocol": 2, "maxProtocol": 3}, 102),
]


@pytest.mark.parametrize("changed, code", WRONG_MODES)
async def test_a_node_without_tools_and_a_mode_that_is_none_are_refused(
    small: LiveEasel, changed: dict[str, Any], code: int
) -> None:
    assert (await refusal(small, **{"tools": TOOLS, **changed})).code == code


async def test_who_is_not_signed_in_is_no_node(small: LiveEasel) -> None:
    async with GatewayClient.open(small.base_url, None) as client:
        with pytest.raises(Refused) as refused:
            await client.connect("laptop", mode="node", tools=TOOLS)
        assert refused.value.code == 401
        assert await client.closed() == (1008, "Not signed in.")


async def test_a_user_has_only_so_many_nodes(small: LiveEasel) -> None:
    async with (
        NodePeer.connected(small, "one"),
        NodePeer.connected(small, "two"),
        NodePeer.connected(small, "three"),
    ):
        refused = await refusal(small, "four")
        assert (refused.code, refused.error["retryable"]) == (429, True)
        async with NodePeer.connected(small, "three"):
            assert {name.partition("__")[0] for name in await names_of(small)} == {"one", "two", "three"}


# --- tokens -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["user", "node"])
async def test_a_persons_token_and_a_nodes_token_can_be_a_node(easel: LiveEasel, kind: str) -> None:
    _, secret = token_for(easel, kind)
    name = new_session()
    async with NodePeer.connected(easel, name, token=secret) as node:
        call = using(easel, f"{name}__Echo", {"a": 1})
        await node.echo_one()
        assert await call == {"a": 1}


async def test_a_services_token_can_not(small: LiveEasel) -> None:
    _, secret = token_for(small, "service")
    assert (await refusal(small, token=secret)).code == 103
    async with GatewayClient.connected(small.base_url, secret) as client:
        await client.call("tools.list")


async def test_a_nodes_token_can_only_be_a_node(small: LiveEasel) -> None:
    _, secret = token_for(small, "node")
    assert (await refusal(small, token=secret, mode="client")).code == 103
    async with GatewayClient.open(small.base_url, None) as client:
        with pytest.raises(Refused) as refused:
            await client.connect("laptop", mode="client", token=secret)
        assert refused.value.code == 103


async def test_a_token_for_one_node_is_for_no_other(small: LiveEasel) -> None:
    _, secret = token_for(small, "node", node_id="laptop")
    assert (await refusal(small, "desktop", token=secret)).code == 403
    async with NodePeer.connected(small, "laptop", token=secret):
        assert len(await names_of(small)) == 2


@pytest.mark.parametrize(
    "method", sorted({*METHODS, "canvas.subscribe", "canvas.unsubscribe", "canvas.dance"})
)
@pytest.mark.parametrize("by", ["a node's token", "the owner's token"])
async def test_a_node_can_ask_for_nothing_that_a_client_can(small: LiveEasel, method: str, by: str) -> None:
    """Whatever its token could do elsewhere: on this connection it is a node and nothing more."""
    token = token_for(small, "node")[1] if by == "a node's token" else None
    async with NodePeer.connected(small, "laptop", token=token) as node:
        refused = await node.client.refusal(method, {"canvasId": "cockpit"})
        assert refused is not None
        assert (refused.code, refused.error["name"]) == (103, "NOT_IN_MODE")
        again = await node.client.refusal("connect", {})
        assert again is not None
        assert again.code == 400


@case("X5")
@pytest.mark.parametrize("method", ["tool.result", "tool.progress"])
async def test_a_client_cannot_answer_for_a_node(small: LiveEasel, method: str) -> None:
    """Bug 8 of GSV: any connection could send `tool.result` for any call."""
    async with (
        NodePeer.connected(small, "laptop") as node,
        GatewayClient.connected(small.base_url, small.token) as client,
    ):
        call = using(small, "laptop__Echo")
        asked = await node.invoked()
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
async def test_a_revoked_token_ends_its_connections_and_no_others(small: LiveEasel) -> None:
    revoked_id, revoked = token_for(small, "node")
    _, other = token_for(small, "node")
    instance = small.instances[0]
    async with (
        NodePeer.connected(small, "one", token=revoked) as node,
        NodePeer.connected(small, "two", token=other) as of_other,
        NodePeer.connected(small, "three") as of_owner,
    ):
        call = using(small, "one__Echo")
        await node.invoked()
        small.do(Tokens(instance.opened.tokens, instance.services.audit).revoke(revoked_id))
        assert await node.client.closed() == (1008, "Signed out.")
        with pytest.raises(Exception, match="disconnected"):
            await call
        for still_there in (of_other, of_owner):
            on_it = using(small, f"{still_there.node_id}__Echo")
            await still_there.echo_one()
            await on_it
    refused = await refusal(small, "one", token=revoked)
    assert refused.code == 401


@case("O9")
async def test_a_persons_connection_ends_with_their_token_too(small: LiveEasel) -> None:
    token_id, secret = token_for(small, "user")
    instance = small.instances[0]
    async with GatewayClient.connected(small.base_url, secret) as client:
        await client.call("tools.list")
        small.do(Tokens(instance.opened.tokens, instance.services.audit).revoke(token_id))
        assert await client.closed() == (1008, "Signed out.")


# --- coming back, and going ---------------------------------------------------------------------------------


async def test_a_node_that_connects_again_takes_the_place_of_its_older_connection(easel: LiveEasel) -> None:
    name = new_session()
    async with NodePeer.connected(easel, name) as older:
        call = using(easel, f"{name}__Echo")
        await older.invoked()
        async with NodePeer.connected(easel, name, tools=[a_tool("New")]) as newer:
            with pytest.raises(Exception, match="disconnected"):
                await call
            assert await older.client.closed() == (1000, "Replaced by a newer connection")
            assert await names_of(easel) == {f"{name}__New"}
            for _ in range(3):
                call = using(easel, f"{name}__New")
                await newer.echo_one()
                await call
            async with NodePeer.connected(easel, name) as newest:
                assert (await newer.client.closed())[0] == 1000, (
                    "the late end of the older one has not put the newer one out of sight"
                )
                call = using(easel, f"{name}__Echo")
                await newest.echo_one()
                await call


async def test_a_client_and_a_node_of_one_name_do_not_disturb_each_other(small: LiveEasel) -> None:
    async with (
        GatewayClient.connected(small.base_url, small.token, "laptop") as client,
        NodePeer.connected(small, "laptop") as node,
        GatewayClient.connected(small.base_url, small.token, "other"),
    ):
        await client.call("tools.list")
        call = using(small, "laptop__Echo")
        await node.echo_one()
        await call


async def test_two_users_nodes_of_one_name_never_meet(easel: LiveEasel) -> None:
    name, instance = new_session(), easel.instances[0]
    easel.sql(f"insert into users (user_id, name) values ('u-{name}', 'u-{name}')")
    _, secret = easel.do(Tokens(instance.opened.tokens, instance.services.audit).create(f"u-{name}", "user"))
    async with (
        NodePeer.connected(easel, name) as mine,
        NodePeer.connected(easel, name, token=secret, tools=[a_tool("Theirs")]) as theirs,
        GatewayClient.connected(easel.base_url, secret, new_session()) as their_client,
    ):
        assert await names_of(easel) == {f"{name}__Echo", f"{name}__Bash"}
        assert await names_of(easel, user=f"u-{name}") == {f"{name}__Theirs"}
        [local, seen] = (await their_client.call("nodes.list"))["nodes"]
        assert local["nodeId"] == "local", "the server itself is everybody's"
        assert seen["tools"] == [f"{name}__Theirs"]
        with pytest.raises(Exception, match="no such tool"):
            await using(easel, f"{name}__Theirs")
        call = using(easel, f"{name}__Theirs", user=f"u-{name}")
        await theirs.echo_one()
        await call
        assert mine.client.unheard == 0


@case("R4")
async def test_a_connection_that_is_only_half_there_is_found_within_seconds(impatient: LiveEasel) -> None:
    """Nobody reads at the other end and nobody says goodbye: a cable was pulled, or a machine sleeps."""
    async with NodePeer.connected(impatient, "laptop") as node:
        call = using(impatient, "laptop__Echo")
        await node.invoked()
        node.client.socket.transport.pause_reading()  # no pong any more
        silence = Stopwatch()
        with pytest.raises(Exception, match="disconnected"):
            await call
        assert silence.seconds < Settings().node_heartbeat_seconds, (
            "sooner than without the setting, which needs this long at least"
        )
        assert await names_of(impatient) == set()


async def test_a_node_that_takes_nothing_is_given_up_however_much_waits_for_it(impatient: LiveEasel) -> None:
    async with NodePeer.connected(impatient, "laptop") as node:
        node.client.socket.transport.pause_reading()
        calls = [using(impatient, "laptop__Echo", {"a": "x" * 500_000}) for _ in range(20)]
        async with asyncio.timeout(WAIT_SECONDS):
            ended = await asyncio.gather(*calls, return_exceptions=True)
        assert all("disconnected" in str(problem) for problem in ended)


async def test_a_stopping_server_tells_its_nodes_to_come_back(tmp_path: Path) -> None:
    live = Live(tmp_path, with_worker=False)
    live.__enter__()
    ended = False
    try:
        async with NodePeer.connected(live, "laptop") as node:
            stopping = asyncio.create_task(asyncio.to_thread(live.__exit__))
            ended = True
            assert (await node.client.closed())[0] == 1012
            await stopping
    finally:
        if not ended:
            live.__exit__()


async def test_coming_and_going_is_in_the_audit_trail(small: LiveEasel) -> None:
    async with NodePeer.connected(small, "audited"):
        pass

    async def is_told() -> bool:
        records = small.get("/api/audit").json()["records"]
        return {("node.connected", "audited"), ("node.disconnected", "audited")} <= {
            (one["action"], one.get("subject")) for one in records
        }

    await wait_for(is_told)
