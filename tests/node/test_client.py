"""The node client, with a real server and with servers that misbehave: it runs calls, and reconnects."""

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
from easel.node import backoff as node_backoff
from easel.node import calls as node_calls
from easel.node import client as node_client
from easel.node.client import NodeClient
from tests.edges.gateway.node_peer import NodePeer, call_tool, node_tool_names
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
    """A tool that runs a function of the test."""

    name: str
    work: Callable[[Mapping[str, Any], Callable[[str], None]], Awaitable[Any]]
    schema: dict[str, Any] = field(default_factory=lambda: ECHO_SCHEMA)

    @property
    def definition(self) -> ToolDefinition:
        return ToolDefinition(self.name, "For a test.", self.schema, read_only=True)

    async def use(
        self,
        args: Mapping[str, Any],
        context: None,
        on_output: Callable[[str], None] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Any:
        assert on_output is not None
        return await self.work(args, on_output)


class RecordingTools:
    """Tools that record when they start and stop."""

    def __init__(self) -> None:
        self.started: asyncio.Queue[str] = asyncio.Queue()
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

    async def _echo(self, args: Mapping[str, Any], on_output: Callable[[str], None]) -> Any:
        return dict(args)

    async def _hold(self, args: Mapping[str, Any], on_output: Callable[[str], None]) -> Any:
        self.started.put_nowait("hold")
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.put_nowait("hold")

    async def _fail(self, args: Mapping[str, Any], on_output: Callable[[str], None]) -> Any:
        raise ToolFailed(tool="Fail", reason="not found.")

    async def _break(self, args: Mapping[str, Any], on_output: Callable[[str], None]) -> Any:
        raise ZeroDivisionError("a secret of the node")

    async def _large(self, args: Mapping[str, Any], on_output: Callable[[str], None]) -> Any:
        return "x" * 2_000_000

    async def _print(self, args: Mapping[str, Any], on_output: Callable[[str], None]) -> Any:
        for n in range(1_000):
            on_output(f"line {n}\n")
        self.started.put_nowait("print")
        await self.may_end.wait()
        return "printed"


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_backoff, "FIRST_SECONDS", 0.02)
    monkeypatch.setattr(node_backoff, "MAX_SECONDS", 0.1)
    monkeypatch.setattr(node_calls, "BATCH_SECONDS", 0.02)
    monkeypatch.setattr(node_client, "CLOSE_SECONDS", 0.1)


@pytest.fixture(scope="module")
def easel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    with Live(tmp_path_factory.mktemp("easel"), with_worker=False, settings={"poll_seconds": 0.1}) as live:
        yield live


@dataclass
class RunningNode:
    client: NodeClient
    tools: RecordingTools
    reports: list[str]
    stop: asyncio.Event
    task: asyncio.Task[None]

    async def wait_for_report(self, part: str, times: int = 1) -> None:
        await wait_for(
            lambda: sum(part in line for line in self.reports) >= times, what=f"{times} times {part!r}"
        )

    async def wait_for_start(self) -> None:
        """Wait until one of its tools has started."""
        async with asyncio.timeout(SECONDS):
            await self.tools.started.get()

    async def wait_for_end(self) -> None:
        async with asyncio.timeout(SECONDS):
            await self.task


@contextlib.asynccontextmanager
async def running(
    url: str, token: str = "", node_id: str = "laptop", heartbeat: float = 60.0
) -> AsyncIterator[RunningNode]:
    """Run a node; by default with a heartbeat for a slow machine."""
    tools, reports, stop = RecordingTools(), list[str](), asyncio.Event()
    client = NodeClient(url, node_id, tools.tools, reports.append, token, heartbeat)
    task = asyncio.create_task(client.run(stop))
    try:
        yield RunningNode(client, tools, reports, stop, task)
    finally:
        stop.set()
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(task, return_exceptions=True)


def gateway_of(easel: LiveEasel) -> str:
    return f"ws{easel.base_url.removeprefix('http')}/ws"


@contextlib.asynccontextmanager
async def connected(easel: LiveEasel, token: str = "") -> AsyncIterator[RunningNode]:
    """Run a node that is connected, after the node of the previous test has disconnected."""
    await wait_until_disconnected(easel)
    async with running(gateway_of(easel), token or easel.token) as node:
        await node.wait_for_report("Connected to ")

        async def is_known() -> bool:
            return "laptop__Echo" in await node_tool_names(easel)

        await wait_for(is_known)
        yield node


async def wait_until_disconnected(easel: LiveEasel) -> None:
    async def has_no_tools() -> bool:
        return await node_tool_names(easel) == set()

    await wait_for(has_no_tools)


async def failure_of(call: asyncio.Future[Any]) -> str:
    with pytest.raises(ToolFailed) as failure:
        async with asyncio.timeout(SECONDS):
            await call
    return failure.value.message


# --- with a real server -------------------------------------------------------------------------------------


@rule("CV-03")
async def test_node_offers_its_tools_and_runs_calls(easel: LiveEasel) -> None:
    async with connected(easel) as node:
        names = "Echo, Hold, Fail, Break, Large, Print"
        assert node.reports == [f"Connected to {gateway_of(easel)} as laptop, with 6 tools: {names}."]
        assert await call_tool(easel, "laptop__Echo", {"n": 1, "more": ["ü", None]}) == {
            "n": 1,
            "more": ["ü", None],
        }
        assert await failure_of(call_tool(easel, "laptop__Fail")) == "laptop__Fail: not found."
        assert (
            await failure_of(call_tool(easel, "laptop__Break"))
            == "laptop__Break: raised ZeroDivisionError on the node."
        )
        assert "its result of 2000002 bytes is over the limit of 262144" in await failure_of(
            call_tool(easel, "laptop__Large")
        )
        assert await call_tool(easel, "laptop__Echo", {"n": 2}) == {"n": 2}
        assert not node.task.done()
    await wait_until_disconnected(easel)


async def test_node_with_a_long_list_of_tools_connects(easel: LiveEasel) -> None:
    """Its `connect` is longer than the frames that a server takes without a token in the upgrade request."""
    await wait_until_disconnected(easel)
    schema = {"type": "object", "description": "x" * 2_000}
    tools = [PlainTool(f"Echo{n}", RecordingTools()._echo, schema) for n in range(40)]
    reports, stop = list[str](), asyncio.Event()
    client = NodeClient(gateway_of(easel), "laptop", tools, reports.append, easel.token, 60.0)
    task = asyncio.create_task(client.run(stop))
    try:
        await wait_for(lambda: bool(reports))
        assert "with 40 tools" in reports[0]
    finally:
        stop.set()
        await task


async def test_calls_run_concurrently_and_are_cancelled_one_by_one(easel: LiveEasel) -> None:
    async with connected(easel) as node:
        held = [call_tool(easel, "laptop__Hold") for _ in range(2)]
        for _ in held:
            await node.wait_for_start()
        assert await asyncio.gather(*(call_tool(easel, "laptop__Echo", {"n": n}) for n in range(20))) == [
            {"n": n} for n in range(20)
        ]
        held[0].cancel()
        async with asyncio.timeout(SECONDS):
            await node.tools.stopped.get()
        assert node.tools.stopped.empty()
        assert not held[1].done()
    assert "disconnected" in await failure_of(held[1])
    assert node.tools.stopped.qsize() == 1, "the other one ends with the node"


async def test_output_is_received_while_the_tool_runs(easel: LiveEasel) -> None:
    received: list[str] = []
    async with connected(easel) as node:
        call = call_tool(easel, "laptop__Print", on_output=received.append)
        await node.wait_for_start()

        await wait_for(lambda: "line 999\n" in "".join(received))
        assert not call.done()
        node.tools.may_end.set()
        assert await call == "printed"
        assert len(received) < 20, "in batches, not line by line"


async def test_stopping_the_node_disconnects_at_once(easel: LiveEasel) -> None:
    async with connected(easel) as node:
        call = call_tool(easel, "laptop__Hold")
        await node.wait_for_start()
        node.stop.set()
        await node.wait_for_end()
        assert "disconnected" in await failure_of(call)
        assert node.tools.stopped.qsize() == 1
        assert len(node.reports) == 1, "only that it is connected"


async def test_replaced_node_ends_with_the_reason(easel: LiveEasel) -> None:
    """If it reconnected, the two would replace each other forever."""
    async with connected(easel) as node, NodePeer.connected(easel, "laptop"):
        with pytest.raises(BadSettings, match="Another node has connected as laptop"):
            await node.wait_for_end()


async def test_node_with_a_revoked_token_is_disconnected_and_retries(easel: LiveEasel) -> None:
    tokens = Tokens(easel.instances[0].opened.tokens, easel.instances[0].services.audit)
    made, secret = easel.do(tokens.create("owner", "node"))
    async with connected(easel, secret) as node:
        await asyncio.to_thread(easel.do, tokens.revoke(made.token_id))
        await node.wait_for_report("Signed out.")
        await node.wait_for_report("does not know this token; create one with `easel token create", times=2)
        assert not node.task.done()
        assert not any(secret in line for line in node.reports)


@pytest.mark.parametrize("node_id, part", [("gsv", "reserved"), ("a__b", "not a node id")])
async def test_refused_node_id_ends_the_node(easel: LiveEasel, node_id: str, part: str) -> None:
    async with running(gateway_of(easel), easel.token, node_id) as node:
        with pytest.raises(BadSettings, match=part):
            await node.wait_for_end()


async def test_node_reconnects_when_the_server_is_available_again() -> None:
    with sockets.socket() as listener:
        listener.bind(("127.0.0.1", 0))  # reserved, and not listening yet
        url = f"ws://127.0.0.1:{listener.getsockname()[1]}/ws"
        async with running(url, "the same") as node:
            await node.wait_for_report(f"No connection to {url}", times=3)
            assert "Retrying in" in node.reports[0]
            assert "until it succeeds; press Ctrl-C to stop." in node.reports[0]

            async def handle(socket: ServerConnection) -> None:
                assert json.loads(await socket.recv())["params"]["auth"] == {"token": "the same"}
                await socket.close(1012)

            async with serve(handle, sock=listener):
                await node.wait_for_report("The connection to", times=2)
            assert not node.task.done()


# --- with servers that misbehave ----------------------------------------------------------------------------

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
async def serve_with(
    handle: Callable[[ServerConnection], Awaitable[None]], **options: Any
) -> AsyncIterator[str]:
    async with serve(handle, "127.0.0.1", 0, compression=None, **options) as server:
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
async def test_invalid_frames_are_ignored() -> None:
    answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def handle(socket: ServerConnection) -> None:
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

    async with serve_with(handle) as url, running(url):
        async with asyncio.timeout(SECONDS):
            answer = await answers.get()
        assert (answer["type"], answer["method"]) == ("req", "tool.result")
        assert answer["params"] == {"callId": "c1", "result": {"n": 7}}


INVALID_CALLS: list[tuple[str, Any, dict[str, Any], str]] = [
    ("an unknown tool", "Nothing", {}, "no such tool; it has Break, Echo"),
    ("wrong arguments", "Echo", {"n": "seven"}, "integer"),
    ("deep arguments", "Echo", {"deep": json.loads("[" * 150 + "]" * 150)}, "deeper"),
    ("a result beyond the server's limit", "Echo", {"long": "x" * 600}, "over the limit of 500"),
]


@pytest.mark.parametrize("name, tool, args, part", INVALID_CALLS, ids=[row[0] for row in INVALID_CALLS])
async def test_call_is_validated_by_the_node(name: str, tool: str, args: dict[str, Any], part: str) -> None:
    answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def handle(socket: ServerConnection) -> None:
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

    async with serve_with(handle) as url, running(url):
        async with asyncio.timeout(SECONDS):
            answer = await answers.get()
        assert part in answer["params"]["error"]


async def test_repeated_call_runs_once() -> None:
    answers: list[Any] = []

    async def handle(socket: ServerConnection) -> None:
        await socket.recv()
        await socket.send(json.dumps(HELLO))
        hold = {
            "type": "evt",
            "event": "tool.invoke",
            "payload": {"callId": "c1", "tool": "Hold", "args": {}},
        }
        for _ in range(3):
            await socket.send(json.dumps(hold))
        await socket.send(json.dumps(INVOKE).replace('"c1"', '"c2"'))
        answers.append(json.loads(await socket.recv()))
        await socket.wait_closed()

    async with serve_with(handle) as url, running(url) as node:
        await wait_for(lambda: bool(answers))
        assert node.tools.started.qsize() == 1


@case("R4")
async def test_silent_connection_is_closed_after_the_heartbeat() -> None:
    """The server accepts data and sends none, not even a pong."""
    is_over = asyncio.Event()

    async def handle(socket: ServerConnection) -> None:
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

    async with serve_with(handle, close_timeout=0.1) as url, running(url, heartbeat=0.2) as node:
        try:
            async with asyncio.timeout(SECONDS):
                await node.tools.stopped.get()  # its call is cancelled
            await node.wait_for_report("Connected to", times=2)
        finally:
            is_over.set()


async def test_connection_without_hello_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_client, "OPEN_SECONDS", 0.2)

    async def handle(socket: ServerConnection) -> None:
        await socket.wait_closed()

    async with serve_with(handle) as url, running(url) as node:
        await node.wait_for_report("No connection to", times=2)


async def test_redirect_is_not_followed_with_the_token() -> None:
    received: list[Any] = []

    async def record(socket: ServerConnection) -> None:
        received.append(await socket.recv())

    async with serve_with(record) as other:

        def redirect(socket: ServerConnection, request: Any) -> Any:
            answer = socket.respond(HTTPStatus.FOUND, "")
            answer.headers["Location"] = other
            return answer

        async with serve_with(record, process_request=redirect) as url, running(url) as node:
            await node.wait_for_report("No connection to", times=2)
    assert received == []


@pytest.mark.parametrize("code", [400, 102, 103, 403, 413])
async def test_permanent_refusal_ends_the_node(code: int) -> None:
    async def handle(socket: ServerConnection) -> None:
        await socket.recv()
        await socket.send(
            json.dumps(
                {"type": "res", "id": "0", "ok": False, "error": {"code": code, "message": "no, never"}}
            )
        )
        await socket.wait_closed()

    async with serve_with(handle) as url, running(url) as node:
        with pytest.raises(BadSettings, match="no, never"):
            await node.wait_for_end()


@pytest.mark.parametrize("code, uses_max_delay", [(401, True), (503, False)])
async def test_unknown_token_is_retried_with_the_longest_delay(
    monkeypatch: pytest.MonkeyPatch, code: int, uses_max_delay: bool
) -> None:
    monkeypatch.setattr(node_backoff, "FIRST_SECONDS", 0.001)
    monkeypatch.setattr(node_backoff, "MAX_SECONDS", 0.4)

    async def handle(socket: ServerConnection) -> None:
        await socket.recv()
        await socket.send(
            json.dumps({"type": "res", "id": "0", "ok": False, "error": {"code": code, "message": "not now"}})
        )
        await socket.wait_closed()

    async with serve_with(handle) as url, running(url) as node:
        await node.wait_for_report("Retrying in")
    assert ("Retrying in 0.0 s" not in node.reports[0]) is uses_max_delay


@pytest.mark.parametrize("code", [401, 429, 500, 503])
async def test_temporary_refusal_is_retried(code: int) -> None:
    async def handle(socket: ServerConnection) -> None:
        await socket.recv()
        await socket.send(
            json.dumps({"type": "res", "id": "0", "ok": False, "error": {"code": code, "message": "not now"}})
        )
        await socket.wait_closed()

    async with serve_with(handle) as url, running(url) as node:
        await node.wait_for_report("Retrying in", times=3)
        assert not node.task.done()
