"""Canvases with actions, and tools that a test controls.

Easel runs in another thread than the test, so a tool signals with a thread-safe future that it was entered,
and waits until the test releases it.
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

# A tool that a test forgot to release ends after this time, later than any other wait of a test.
HOLD_SECONDS = 60.0
ANY: dict[str, Any] = {"type": "object"}
SHELL: dict[str, Any] = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "x-shell": True},
        "note": {"type": "string", "x-shell": False},
    },
    "x-secrets": True,
    "required": ["command"],
    "additionalProperties": False,
}


@dataclass
class TestTool:
    """A tool that records its calls."""

    __test__ = False

    definition: ToolDefinition
    work: Callable[[Mapping[str, Any], ToolContext], Awaitable[Any]]
    calls: list[tuple[dict[str, Any], ToolContext]] = field(
        default_factory=list[tuple[dict[str, Any], "ToolContext"]]
    )

    async def use(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        self.calls.append((dict(args), context))
        return await self.work(args, context)

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def args(self) -> list[dict[str, Any]]:
        return [args for args, _ in self.calls]


class Gate:
    """The calls of `test__Gate`, by name: each waits until it is released."""

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


class ControlledTools:
    """The tools of one Easel, each with its recorded calls."""

    def __init__(self, folder: Path) -> None:
        self.gate = Gate()
        self.folder = folder
        self.gives: dict[str, Any] = {}  # the result of test__Give, by name
        self.problems: dict[str, BaseException] = {}  # the error of test__Fail, by name
        self.read = self._tool("Read", self._echo, read_only=True)
        self.act = self._tool("Act", self._echo)
        self.hold = self._tool("Gate", self.gate.wait, read_only=True)
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
        self.tools = [self.read, self.act, self.hold, self.give, self.fail, self.bash, self.strict]

    def _tool(self, name: str, work: Any, *, schema: dict[str, Any] = ANY, **hints: bool) -> TestTool:
        return TestTool(ToolDefinition(f"test__{name}", name, schema, **hints), work)

    async def _echo(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        return dict(args)

    async def _give(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        return self.gives[args["name"]]

    async def _fail(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        raise self.problems.get(args["name"]) or ToolFailed(tool="test__Fail", reason=args["name"])

    async def _bash(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        done = await asyncio.to_thread(
            subprocess.run,
            ["bash", "-c", args["command"]],
            cwd=self.folder,
            env={"PATH": "/usr/bin:/bin", "HOME": "/no/home", "LC_ALL": "C.UTF-8", **(context.env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=HOLD_SECONDS,
            check=False,
        )
        return {"exitCode": done.returncode, "arguments": done.stdout.decode().split("\0")[:-1]}


def audit_records(easel: LiveEasel, action: str, subject: str) -> list[dict[str, Any]]:
    """Return the audit records of this action and subject, oldest first."""
    rows = easel.sql(f"select record from audit where action = '{action}' order by seq")
    records = [json.loads(row["record"]) for row in rows]
    return [record for record in records if record.get("subject") == subject]


async def run_inside(easel: LiveEasel, work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in the event loop of Easel, as a principal that no client can be."""
    return await asyncio.to_thread(easel.do, work)


async def expect_refusal(request: Awaitable[Any]) -> Refused:
    """Return the error that a request is refused with."""
    with pytest.raises(Refused) as problem:
        await request
    return problem.value


# --- canvases with actions ------------------------------------------------------------------------


def call_tool(tool: TestTool | str, **options: Any) -> dict[str, Any]:
    """An action that call_tool a tool. `confirm` is `never` unless it is said."""
    name = tool if isinstance(tool, str) else tool.name
    return {"kind": "tool.call", "tool": name, "confirm": "never", **options}


def set_state(path: str, value: Any, **options: Any) -> dict[str, Any]:
    return {"kind": "state.patch", "patch": [{"op": "add", "path": path, "value": value}], **options}


def make_spec(
    actions: dict[str, Any], *, state: dict[str, Any] | None = None, allow: list[str] | None = None
) -> dict[str, Any]:
    """Return a spec that allows the tools of its actions, unless `allow` says otherwise."""
    tools = (
        sorted({action["tool"] for action in actions.values() if "tool" in action})
        if allow is None
        else allow
    )
    return {"version": 1, "toolPolicy": {"allow": tools}, "state": state or {}, "actions": actions}


@dataclass
class CanvasClient:
    """One canvas and a client that runs its actions."""

    client: GatewayClient
    name: str

    @classmethod
    async def create(
        cls, client: GatewayClient, actions: dict[str, Any], *, name: str | None = None, **options: Any
    ) -> CanvasClient:
        canvas = cls(client, name or new_session())
        owner = {key: options.pop(key) for key in ("ownerSessionKey", "agentId") if key in options}
        spec = make_spec(actions, **options)
        await client.call("canvas.create", canvasId=canvas.name, spec=spec, **owner)
        return canvas

    async def run(self, action: str, **options: Any) -> Any:
        """Run an action and return its outcome. Options that are not of the protocol are its input."""
        params = {
            key: options.pop(key) for key in ("expectedRevision", "requestId", "input") if key in options
        }
        if options:
            params["input"] = options
        return await self.client.call("canvas.action", canvasId=self.name, actionId=action, **params)

    async def snapshot(self) -> dict[str, Any]:
        return await self.client.call("canvas.get", canvasId=self.name)

    async def state(self) -> dict[str, Any]:
        return (await self.snapshot())["state"]

    async def revision(self) -> int:
        return (await self.snapshot())["revision"]

    async def rewrite(self, actions: dict[str, Any], **options: Any) -> None:
        await self.client.call("canvas.patch", canvasId=self.name, spec=make_spec(actions, **options))

    async def patch(self, path: str, value: Any) -> Any:
        return await self.client.call(
            "canvas.patch", canvasId=self.name, statePatch=[{"op": "add", "path": path, "value": value}]
        )

    async def records(self, **options: Any) -> list[dict[str, Any]]:
        return (await self.client.call("canvas.records", canvasId=self.name, **options))["records"]

    async def confirmations(self) -> list[dict[str, Any]]:
        return (await self.client.call("canvas.confirmations", canvasId=self.name))["confirmations"]

    async def confirm(self, confirmation: dict[str, Any] | str, *, approve: bool = True) -> Any:
        name = confirmation if isinstance(confirmation, str) else confirmation["confirmationId"]
        return await self.client.call("canvas.confirm", confirmationId=name, approve=approve)

    async def listen(self, *, after: int | None = None) -> None:
        """Subscribe to the events from now on, or after the given sequence number."""
        head = (await self.snapshot())["descriptor"]["lastSeq"] if after is None else after
        await self.client.call("canvas.subscribe", canvasId=self.name, afterSeq=head)

    async def log(self) -> list[Heard]:
        """Return all events so far, by a subscription of its own."""
        head = (await self.snapshot())["descriptor"]["lastSeq"]
        await self.listen(after=0)
        events = await self.client.events(head)
        await self.client.call("canvas.unsubscribe", canvasId=self.name)
        return events
