"""What tests of actions press: canvases with buttons, and tools that do what a test tells them.

The tools are real ones, called the way every tool is. Easel lives in another thread than the test, so what both touch is handed over
with care: a tool says that it was entered, and waits until the test lets it go.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from collections import defaultdict
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.tool.definition import ToolDefinition
from easel.errors import ToolFailed
from tests.edges.http.live import new_session
from tests.support.gateway import Refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping
    from pathlib import Path

    from easel.core.tool.context import ToolContext
    from tests.edges.http.live import LiveEasel
    from tests.support.gateway import GatewayClient, Heard

HOLD_SECONDS = 60.0
# A tool that a test forgot to let go of ends by itself; no sooner than whoever waits for something else of it gives up.
ANY: dict[str, Any] = {"type": "object"}
SHELL: dict[str, Any] = {
    "type": "object",
    "properties": {"command": {"type": "string", "x-shell": True}, "note": {"type": "string"}},
    "required": ["command"],
    "additionalProperties": False,
}


@dataclass
class TestTool:
    """A tool that remembers how it was called."""

    __test__ = False

    definition: ToolDefinition
    work: Callable[[Mapping[str, Any], ToolContext], Awaitable[Any]]
    call_tool: list[tuple[dict[str, Any], ToolContext]] = field(
        default_factory=list[tuple[dict[str, Any], "ToolContext"]]
    )

    async def use(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        self.call_tool.append((dict(args), context))
        return await self.work(args, context)

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def args(self) -> list[dict[str, Any]]:
        return [args for args, _ in self.call_tool]


class Gate:
    """Where `test__Gate` waits: each call by its name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entered: dict[str, Future[None]] = defaultdict(Future)
        self._open: dict[str, Future[Any]] = defaultdict(Future)
        self.ended: dict[str, str] = {}

    async def wait(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        name = args["name"]
        with self._lock:
            entered, opened = self._entered[name], self._open[name]
        if not entered.done():
            entered.set_result(None)
        try:
            async with asyncio.timeout(HOLD_SECONDS):
                result = await asyncio.shield(asyncio.wrap_future(opened))
        except asyncio.CancelledError:
            self.ended[name] = "cancelled"
            raise
        self.ended[name] = "returned"
        return result

    async def wait_until_entered(self, name: str) -> None:
        with self._lock:
            entered = self._entered[name]
        async with asyncio.timeout(HOLD_SECONDS):
            await asyncio.shield(asyncio.wrap_future(entered))

    def release(self, name: str, result: Any = None) -> None:
        with self._lock:
            opened = self._open[name]
        if not opened.done():
            opened.set_result(result)

    def is_entered(self, name: str) -> bool:
        with self._lock:
            return name in self._entered and self._entered[name].done()


class ControlledTools:
    """All the tools of one Easel, each with what it was called with."""

    def __init__(self, folder: Path) -> None:
        self.gate = Gate()
        self.folder = folder
        self.gives: dict[str, Any] = {}  # what test__Give gives, by name
        self.problems: dict[str, BaseException] = {}  # what test__Fail raises, by name
        self.read = self._tool("Read", self._echo, read_only=True)
        self.act = self._tool("Act", self._echo)
        self.destroy = self._tool("Destroy", self._echo, read_only=True, destructive=True)
        self.once = self._tool("Once", self._echo, idempotent=True)
        self.hold = self._tool("Gate", self.gate.wait, read_only=True)
        self.stubborn = self._tool("Stubborn", self._stubborn, read_only=True)
        self.give = self._tool("Give", self._give, read_only=True)
        self.fail = self._tool("Fail", self._fail, read_only=True)
        self.bash = self._tool("Bash", self._bash, schema=SHELL)
        strict = {
            "type": "object",
            "properties": {"n": {"type": "integer"}},
            "required": ["n"],
            "additionalProperties": False,
        }
        self.strict = self._tool("Strict", self._echo, schema=strict, read_only=True)
        self.tools = [
            self.read,
            self.act,
            self.destroy,
            self.once,
            self.hold,
            self.stubborn,
            self.give,
            self.fail,
            self.bash,
            self.strict,
        ]

    def _tool(self, name: str, work: Any, *, schema: dict[str, Any] = ANY, **hints: bool) -> TestTool:
        return TestTool(ToolDefinition(f"test__{name}", name, schema, **hints), work)

    async def _echo(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        return dict(args)

    async def _stubborn(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        """Does not let itself be stopped, and says something all the same."""
        while True:
            try:
                return await self.gate.wait(args, context)
            except asyncio.CancelledError:
                continue

    async def _give(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        return self.gives[args["name"]]

    async def _fail(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        raise self.problems.get(args["name"]) or ToolFailed(tool="test__Fail", reason=args["name"])

    async def _bash(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        done = await asyncio.to_thread(
            subprocess.run,
            ["bash", "-c", args["command"]],
            cwd=self.folder,
            env={"PATH": "/usr/bin:/bin", "HOME": "/no/home", "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=HOLD_SECONDS,
            check=False,
        )
        return {"exitCode": done.returncode, "arguments": done.stdout.decode().split("\0")[:-1]}


def audit_records(easel: LiveEasel, action: str, subject: str) -> list[dict[str, Any]]:
    """The links of the audit's chain that speak of this, oldest first."""
    rows = easel.sql(f"select record from audit where action = '{action}' order by seq")
    records = [json.loads(row["record"]) for row in rows]
    return [record for record in records if record.get("subject") == subject]


async def run_inside(easel: LiveEasel, work: Coroutine[Any, Any, Any]) -> Any:
    """Past the edge, as somebody that no client can be yet."""
    return await asyncio.to_thread(easel.do, work)


async def expect_refusal(asked: Awaitable[Any]) -> Refused:
    with pytest.raises(Refused) as problem:
        await asked
    return problem.value


# --- canvases with buttons ----------------------------------------------------------------------------------------------


def call_tool(tool: TestTool | str, **more: Any) -> dict[str, Any]:
    """An action that call_tool a tool. `confirm` is `never` unless it is said."""
    name = tool if isinstance(tool, str) else tool.name
    return {"kind": "tool.call", "tool": name, "confirm": "never", **more}


def set_state(path: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"kind": "state.patch", "patch": [{"op": "add", "path": path, "value": value}], **more}


def make_spec(
    actions: dict[str, Any], *, state: dict[str, Any] | None = None, allow: list[str] | None = None
) -> dict[str, Any]:
    """Allows exactly the tools that its actions call, unless it is said."""
    tools = (
        sorted({action["tool"] for action in actions.values() if "tool" in action})
        if allow is None
        else allow
    )
    return {"version": 1, "toolPolicy": {"allow": tools}, "state": state or {}, "actions": actions}


@dataclass
class CanvasClient:
    """One canvas and one client that presses its buttons."""

    client: GatewayClient
    name: str

    @classmethod
    async def create(
        cls, client: GatewayClient, actions: dict[str, Any], *, name: str | None = None, **how: Any
    ) -> CanvasClient:
        canvas = cls(client, name or new_session())
        more = {key: how.pop(key) for key in ("ownerSessionKey", "agentId") if key in how}
        await client.call("canvas.create", canvasId=canvas.name, spec=make_spec(actions, **how), **more)
        return canvas

    async def run(self, action: str, **how: Any) -> Any:
        """How it ended. Words beside the protocol's own are its input."""
        own = {key: how.pop(key) for key in ("expectedRevision", "requestId", "input") if key in how}
        return await self.client.call(
            "canvas.action", canvasId=self.name, actionId=action, **({"input": how} if how else {}), **own
        )

    async def snapshot(self) -> dict[str, Any]:
        return await self.client.call("canvas.get", canvasId=self.name)

    async def state(self) -> dict[str, Any]:
        return (await self.snapshot())["state"]

    async def revision(self) -> int:
        return (await self.snapshot())["revision"]

    async def rewrite(self, actions: dict[str, Any], **how: Any) -> None:
        await self.client.call("canvas.patch", canvasId=self.name, spec=make_spec(actions, **how))

    async def patch(self, path: str, value: Any) -> Any:
        return await self.client.call(
            "canvas.patch", canvasId=self.name, statePatch=[{"op": "add", "path": path, "value": value}]
        )

    async def records(self, **how: Any) -> list[dict[str, Any]]:
        return (await self.client.call("canvas.records", canvasId=self.name, **how))["records"]

    async def confirmations(self) -> list[dict[str, Any]]:
        return (await self.client.call("canvas.confirmations", canvasId=self.name))["confirmations"]

    async def confirm(self, confirmation: dict[str, Any] | str, *, approve: bool = True) -> Any:
        named = confirmation if isinstance(confirmation, str) else confirmation["confirmationId"]
        return await self.client.call("canvas.confirm", confirmationId=named, approve=approve)

    async def listen(self, *, after: int | None = None) -> None:
        """Events from here on, or from there."""
        head = (await self.snapshot())["descriptor"]["lastSeq"] if after is None else after
        await self.client.call("canvas.subscribe", canvasId=self.name, afterSeq=head)

    async def log(self) -> list[Heard]:
        """All that was told of it so far, by a subscription of its own."""
        head = (await self.snapshot())["descriptor"]["lastSeq"]
        await self.listen(after=0)
        heard = await self.client.events(head)
        await self.client.call("canvas.unsubscribe", canvasId=self.name)
        return heard
