"""The node's client, against a real Easel and against servers that misbehave: it does what it is asked, and comes back for ever."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket as sockets
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from easel.core.tool.definition import ToolDefinition
from easel.errors import BadSettings, ToolFailed
from easel.host.auth.tokens import Tokens
from easel.node import backoff as node_patience
from easel.node import calls as node_calls
from easel.node import client as node_client
from easel.node.client import NodeClient
from tests.edges.gateway.node_peer import NodePeer, names_of, using
from tests.edges.http.live import LiveEasel as Live
from tests.requirements import case, rule
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

    from tests.edges.http.live import LiveEasel

SECONDS = 30.0
ECHO_SCHEMA: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}}


@dataclass
class PlainTool:
    """A tool of the test's own, as the machine's are."""

    name: str
    work: Callable[[Mapping[str, Any], Callable[[str], None]], Awaitable[Any]]
    schema: dict[str, Any] = field(default_factory=lambda: ECHO_SCHEMA)

    @property
    def definition(self) -> ToolDefinition:
        return ToolDefinition(self.name, "For a test.", self.schema, read_only=True)

    async def use(
        self, args: Mapping[str, Any], context: None, on_output: Callable[[str], None] | None = None
    ) -> Any:
        assert on_output is not None
        return await self.work(args, on_output)


class Workshop:
    """Tools that say what happens to them."""

    def __init__(self) -> None:
        self.entered: asyncio.Queue[str] = asyncio.Queue()
        self.stopped: asyncio.Queue[str] = asyncio.Queue()
        self.may_end = asyncio.Event()
        self.tools = [
            PlainTool("Echo", self._echo),
            PlainTool("Hold", self._hold),
            PlainTool("Fail", self._fail),
            PlainTool("Break", self._break),
            PlainTool("Large", self._large),
            PlainTool("Print", self._print),
        ]

    async def _echo(self, args: Mapping[str, Any], hear: Callable[[str], None]) -> Any:
        return dict(args)

    async def _hold(self, args: Mapping[str, Any], hear: Callable[[str], None]) -> Any:
        self.entered.put_nowait("hold")
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.put_nowait("hold")

    async def _fail(self, args: Mapping[str, Any], hear: Callable[[str], None]) -> Any:
        raise ToolFailed(tool="Fail", reason="it is not there.")

    async def _break(self, args: Mapping[str, Any], hear: Callable[[str], None]) -> Any:
        raise ZeroDivisionError("a secret of the node")

    async def _large(self, args: Mapping[str, Any], hear: Callable[[str], None]) -> Any:
        return "x" * 2_000_000

    async def _print(self, args: Mapping[str, Any], hear: Callable[[str], None]) -> Any:
        for n in range(1_000):
            hear(f"line {n}\n")
        self.entered.put_nowait("print")
        await self.may_end.wait()
        return "printed"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users wait up to half a minute between attempts."""
    monkeypatch.setattr(node_patience, "FIRST_SECONDS", 0.02)
    monkeypatch.setattr(node_patience, "MAX_SECONDS", 0.1)
    monkeypatch.setattr(node_calls, "GATHER_SECONDS", 0.02)


@pytest.fixture(scope="module")
def easel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    with Live(tmp_path_factory.mktemp("easel"), with_worker=False, settings={"poll_seconds": 0.1}) as live:
        yield live


@dataclass
class Running:
    client: NodeClient
    shop: Workshop
    said: list[str]
    stop: asyncio.Event
    task: asyncio.Task[None]

    async def has_said(self, part: str, times: int = 1) -> None:
        async def enough() -> bool:
            return sum(part in line for line in self.said) >= times

        await wait_for(enough)

    async def entered(self) -> None:
        """One of its tools has begun."""
        async with asyncio.timeout(SECONDS):
            await self.shop.entered.get()

    async def ended(self) -> None:
        async with asyncio.timeout(SECONDS):
            await self.task


@contextlib.asynccontextmanager
async def running(
    url: str, token: str = "", node_id: str = "laptop", heartbeat: float = 60.0
) -> AsyncIterator[Running]:
    """With a heartbeat that no machine is too slow for."""
    shop, said, stop = Workshop(), list[str](), asyncio.Event()
    client = NodeClient(url, node_id, shop.tools, said.append, token, heartbeat)
    task = asyncio.create_task(client.run(stop))
    try:
        yield Running(client, shop, said, stop, task)
    finally:
        stop.set()
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(task, return_exceptions=True)


def gateway_of(easel: LiveEasel) -> str:
    return f"ws{easel.base_url.removeprefix('http')}/ws"


@contextlib.asynccontextmanager
async def connected(easel: LiveEasel, token: str = "") -> AsyncIterator[Running]:
    """This very node, and not the one of the test before: Easel may have yet to see that one's connection end."""
    await gone(easel)
    async with running(gateway_of(easel), token or easel.token) as node:
        await node.has_said("Connected to ")

        async def knows() -> bool:
            return "laptop__Echo" in await names_of(easel)

        await wait_for(knows)
        yield node


async def gone(easel: LiveEasel) -> None:
    async def knows_not() -> bool:
        return await names_of(easel) == set()

    await wait_for(knows_not)


async def why(call: asyncio.Future[Any]) -> str:
    with pytest.raises(ToolFailed) as failed:
        async with asyncio.timeout(SECONDS):
            await call
    return failed.value.message


# --- with a real Easel --------------------------------------------------------------------------------------------------


@rule("CV-03")
async def test_it_offers_its_tools_and_does_what_it_is_asked(easel: LiveEasel) -> None:
    async with connected(easel) as node:
        assert (
            node.said[0]
            == f"Connected to {gateway_of(easel)} as laptop, with 6 tools: Echo, Hold, Fail, Break, Large, Print."
        )
        assert await using(easel, "laptop__Echo", {"n": 1, "more": ["ü", None]}) == {
            "n": 1,
            "more": ["ü", None],
        }
        assert await why(using(easel, "laptop__Fail")) == "laptop__Fail: it is not there."
        assert (
            await why(using(easel, "laptop__Break"))
            == "laptop__Break: broke on the node (ZeroDivisionError)."
        )
        assert "its result of 2000002 bytes is over the limit of 262144" in await why(
            using(easel, "laptop__Large")
        )
        assert await using(easel, "laptop__Echo", {"n": 2}) == {"n": 2}
        assert not node.task.done()
    await gone(easel)


async def test_several_calls_run_at_once_and_one_is_stopped_alone(easel: LiveEasel) -> None:
    async with connected(easel) as node:
        held = [using(easel, "laptop__Hold") for _ in range(2)]
        for _ in held:
            await node.entered()
        assert await asyncio.gather(*(using(easel, "laptop__Echo", {"n": n}) for n in range(20))) == [
            {"n": n} for n in range(20)
        ]
        held[0].cancel()
        async with asyncio.timeout(SECONDS):
            await node.shop.stopped.get()
        assert node.shop.stopped.empty()
        assert not held[1].done()
    assert "disconnected" in await why(held[1])
    assert node.shop.stopped.qsize() == 1, "and whatever runs ends with the node"


async def test_what_a_tool_prints_is_seen_while_it_runs(easel: LiveEasel) -> None:
    seen: list[str] = []
    async with connected(easel) as node:
        call = using(easel, "laptop__Print", on_output=seen.append)
        await node.entered()

        async def is_seen() -> bool:
            return "line 999\n" in "".join(seen)

        await wait_for(is_seen)
        assert not call.done()
        node.shop.may_end.set()
        assert await call == "printed"
        assert len(seen) < 20, "gathered, not line by line"


async def test_a_clean_stop_says_goodbye_at_once(easel: LiveEasel) -> None:
    async with connected(easel) as node:
        call = using(easel, "laptop__Hold")
        await node.entered()
        node.stop.set()
        await node.ended()
        assert "disconnected" in await why(call)
        assert node.shop.stopped.qsize() == 1
        assert len(node.said) == 1, "nothing went wrong"


async def test_who_finds_another_in_its_place_ends_and_says_why(easel: LiveEasel) -> None:
    """If it came back, the two would throw each other out for ever."""
    async with connected(easel) as node, NodePeer.connected(easel, "laptop"):
        with pytest.raises(BadSettings, match="Another node has connected as laptop"):
            await node.ended()


async def test_a_token_that_is_revoked_ends_the_connection_and_it_goes_on_asking(easel: LiveEasel) -> None:
    desk = Tokens(easel.instances[0].opened.tokens, easel.instances[0].services.audit)
    made, secret = easel.do(desk.create("owner", "node"))
    async with connected(easel, secret) as node:
        await asyncio.to_thread(easel.do, desk.revoke(made.token_id))
        await node.has_said("Signed out.")
        await node.has_said("does not know this token; `easel token create", times=2)
        assert not node.task.done()
        assert not any(secret in line for line in node.said)


@pytest.mark.parametrize("node_id, part", [("gsv", "reserved"), ("a__b", "not a node id")])
async def test_what_the_server_never_takes_ends_it(easel: LiveEasel, node_id: str, part: str) -> None:
    async with running(gateway_of(easel), easel.token, node_id) as node:
        with pytest.raises(BadSettings, match=part):
            await node.ended()


async def test_it_comes_back_to_a_server_that_was_away() -> None:
    with sockets.socket() as place:
        place.bind(("127.0.0.1", 0))  # nobody else can take its address while nobody listens there
        url = f"ws://127.0.0.1:{place.getsockname()[1]}/ws"
        async with running(url, "the same") as node:
            await node.has_said(f"No connection to {url}", times=3)
            assert "Trying again in" in node.said[0]
            assert "and so on for ever; Ctrl-C stops it." in node.said[0]

            async def play(socket: ServerConnection) -> None:
                assert json.loads(await socket.recv())["params"]["auth"] == {"token": "the same"}
                await socket.close(1012)

            async with serve(play, sock=place):
                await node.has_said("The connection to", times=2)
            assert not node.task.done()


# --- with servers that misbehave ----------------------------------------------------------------------------------------

HELLO = {
    "type": "res",
    "id": "0",
    "ok": True,
    "payload": {"type": "hello-ok", "limits": {"resultBytes": 500, "frameBytes": "x"}},
}
INVOKE = {
    "type": "evt",
    "event": "tool.invoke",
    "payload": {"callId": "c1", "tool": "Echo", "args": {"n": 7}},
}


@contextlib.asynccontextmanager
async def played(play: Callable[[ServerConnection], Awaitable[None]], **how: Any) -> AsyncIterator[str]:
    async with serve(play, "127.0.0.1", 0, compression=None, **how) as server:
        [socket] = server.sockets
        yield f"ws://127.0.0.1:{socket.getsockname()[1]}/ws"


BAD_FRAMES: list[str | bytes] = [
    "",
    "{",
    "null",
    "[]",
    "7",
    b"\x00\x01",
    '{"type":"evt"}',
    '{"type":"evt","event":"tool.invoke"}',
    '{"type":"evt","event":"tool.invoke","payload":[]}',
    '{"type":"evt","event":"tool.invoke","payload":{"callId":7,"tool":"Echo"}}',
    '{"type":"evt","event":"tool.invoke","payload":{"callId":"x","tool":7}}',
    '{"type":"evt","event":"tool.cancel","payload":{"callId":"unknown"}}',
    '{"type":"evt","event":"tool.dance","payload":{"callId":"x"}}',
    '{"type":"res","id":"9","ok":false,"error":"none"}',
    '{"type":"res","id":"9"}',
    "[" * 5_000,
]


@case("R5")
async def test_no_bad_frame_ends_it() -> None:
    answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def play(socket: ServerConnection) -> None:
        await socket.send("{")
        connect = json.loads(await socket.recv())
        assert (connect["method"], connect["params"]["client"]["mode"]) == ("connect", "node")
        await socket.send(json.dumps({"type": "evt", "event": "early", "payload": {}}))
        await socket.send(json.dumps(HELLO))
        for frame in BAD_FRAMES:
            await socket.send(frame)
        await socket.send(json.dumps(INVOKE))
        while True:
            answers.put_nowait(json.loads(await socket.recv()))

    async with played(play) as url, running(url):
        async with asyncio.timeout(SECONDS):
            answer = await answers.get()
        assert (answer["type"], answer["method"]) == ("req", "tool.result")
        assert answer["params"] == {"callId": "c1", "result": {"n": 7}}


ASKED: list[tuple[str, Any, dict[str, Any], str]] = [
    ("an unknown tool", "Nothing", {}, "no such tool; it has Break, Echo"),
    ("wrong arguments", "Echo", {"n": "seven"}, "integer"),
    ("deep arguments", "Echo", {"deep": json.loads("[" * 150 + "]" * 150)}, "deeper"),
    ("a result beyond the server's limit", "Echo", {"long": "x" * 600}, "over the limit of 500"),
]


@pytest.mark.parametrize("says, tool, args, part", ASKED, ids=[row[0] for row in ASKED])
async def test_it_trusts_the_server_with_nothing(
    says: str, tool: str, args: dict[str, Any], part: str
) -> None:
    answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def play(socket: ServerConnection) -> None:
        await socket.recv()
        await socket.send(json.dumps(HELLO))
        await socket.send(
            json.dumps(
                {
                    "type": "evt",
                    "event": "tool.invoke",
                    "payload": {"callId": "c1", "tool": tool, "args": args},
                }
            )
        )
        answers.put_nowait(json.loads(await socket.recv()))
        await socket.wait_closed()

    async with played(play) as url, running(url):
        async with asyncio.timeout(SECONDS):
            answer = await answers.get()
        assert part in answer["params"]["error"]


async def test_the_same_call_twice_is_done_once() -> None:
    said: list[Any] = []

    async def play(socket: ServerConnection) -> None:
        await socket.recv()
        await socket.send(json.dumps(HELLO))
        hold = {
            "type": "evt",
            "event": "tool.invoke",
            "payload": {"callId": "c1", "tool": "Hold", "args": {}},
        }
        for _ in range(3):
            await socket.send(json.dumps(hold))
        await socket.send(json.dumps(INVOKE | {"payload": {**INVOKE["payload"], "callId": "c2"}}))  # type: ignore[dict-item]
        said.append(json.loads(await socket.recv()))
        await socket.wait_closed()

    async with played(play) as url, running(url) as node:

        async def is_answered() -> bool:
            return bool(said)

        await wait_for(is_answered)
        assert node.shop.entered.qsize() == 1


@case("R4")
async def test_a_server_that_is_only_half_there_is_found_within_seconds() -> None:
    """It takes everything and says nothing, not even that it is alive."""
    is_over = asyncio.Event()

    async def play(socket: ServerConnection) -> None:
        await socket.recv()
        await socket.send(json.dumps(HELLO))
        await socket.send(
            json.dumps(
                {
                    "type": "evt",
                    "event": "tool.invoke",
                    "payload": {"callId": "c1", "tool": "Hold", "args": {}},
                }
            )
        )
        socket.transport.pause_reading()
        await is_over.wait()

    async with played(play, close_timeout=0.1) as url, running(url, heartbeat=0.2) as node:
        try:
            async with asyncio.timeout(SECONDS):
                await node.shop.stopped.get()  # what it was asked has nobody any more
            await node.has_said("Connected to", times=2)
        finally:
            is_over.set()


async def test_a_server_that_does_not_greet_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_client, "OPEN_SECONDS", 0.2)

    async def play(socket: ServerConnection) -> None:
        await socket.wait_closed()

    async with played(play) as url, running(url) as node:
        await node.has_said("No connection to", times=2)


async def test_its_token_goes_nowhere_else() -> None:
    """An address that sends it on to another is not followed."""
    heard: list[Any] = []

    async def elsewhere(socket: ServerConnection) -> None:
        heard.append(await socket.recv())

    async with played(elsewhere) as other:

        def send_on(socket: ServerConnection, request: Any) -> Any:
            answer = socket.respond(HTTPStatus.FOUND, "")
            answer.headers["Location"] = other
            return answer

        async with played(elsewhere, process_request=send_on) as url, running(url) as node:
            await node.has_said("No connection to", times=2)
    assert heard == []


@pytest.mark.parametrize("code", [400, 102, 103, 403, 413])
async def test_a_refusal_that_time_does_not_mend_ends_it(code: int) -> None:
    async def play(socket: ServerConnection) -> None:
        await socket.recv()
        await socket.send(
            json.dumps(
                {"type": "res", "id": "0", "ok": False, "error": {"code": code, "message": "no, never"}}
            )
        )
        await socket.wait_closed()

    async with played(play) as url, running(url) as node:
        with pytest.raises(BadSettings, match="no, never"):
            await node.ended()


@pytest.mark.parametrize("code, is_long", [(401, True), (503, False)])
async def test_a_token_that_is_not_known_is_given_time(
    monkeypatch: pytest.MonkeyPatch, code: int, is_long: bool
) -> None:
    """It will not be known in a moment; a server that is busy may not be so in a moment."""
    monkeypatch.setattr(node_patience, "FIRST_SECONDS", 0.001)
    monkeypatch.setattr(node_patience, "MAX_SECONDS", 0.4)

    async def play(socket: ServerConnection) -> None:
        await socket.recv()
        await socket.send(
            json.dumps({"type": "res", "id": "0", "ok": False, "error": {"code": code, "message": "not now"}})
        )
        await socket.wait_closed()

    async with played(play) as url, running(url) as node:
        await node.has_said("Trying again in")
    assert ("Trying again in 0.0 s" not in node.said[0]) is is_long


@pytest.mark.parametrize("code", [401, 429, 500, 503])
async def test_a_refusal_that_time_may_mend_does_not(code: int) -> None:
    async def play(socket: ServerConnection) -> None:
        await socket.recv()
        await socket.send(
            json.dumps({"type": "res", "id": "0", "ok": False, "error": {"code": code, "message": "not now"}})
        )
        await socket.wait_closed()

    async with played(play) as url, running(url) as node:
        await node.has_said("Trying again in", times=3)
        assert not node.task.done()
