"""Scripted sessions of GSV's web client and of its node, compared with recorded transcripts. RS-67

`EASEL_RECORD=1` records them again; read the difference before you commit it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.edges.gateway.gsv_peer import GsvPeer, Transcript
from tests.edges.http.live import LiveEasel, capture_log
from tests.requirements import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORDED = Path(__file__).parent / "gsv_transcripts"
BROWSER = {"id": "web-1a2b3c4d", "version": "0.1.0", "platform": "web", "mode": "client"}
NODE = {"id": "node-atelier", "version": "0.1.7", "platform": "linux", "mode": "node"}
BASH = {
    "name": "Bash",
    "description": "Execute a shell command.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "command": {"type": "string"},
            "workdir": {"type": "string"},
            "timeout": {"type": "number"},
            "background": {"type": "boolean"},
            "yieldMs": {"type": "number"},
        },
        "required": ["command"],
    },
}
RUNTIME = {
    "hostRole": "execution",
    "hostCapabilities": ["filesystem.list", "filesystem.read", "filesystem.write", "shell.exec"],
    "toolCapabilities": {"Bash": ["shell.exec"]},
    "hostOs": "linux",
}
SPEC = {
    "version": 1,
    "toolPolicy": {"allow": ["gsv__Echo"]},
    "actions": {
        "begin": {"kind": "state.patch", "patch": [{"op": "add", "path": "/status", "value": "begun"}]},
        "ask": {"kind": "tool.call", "tool": "gsv__Echo", "args": {"value": 1}, "confirm": "always"},
    },
}
ON_NODE = {
    "version": 1,
    "toolPolicy": {"allow": ["node-atelier__Bash"]},
    "actions": {
        "show": {
            "kind": "tool.call",
            "tool": "node-atelier__Bash",
            "args": {"command": "ls -- {{input.folder}}"},
            "confirm": "never",
            "saveAs": "listing",
        }
    },
}


def result(output: str, **members: Any) -> dict[str, Any]:
    """Return a result of GSV's Bash."""
    return {
        "status": "completed",
        "sessionId": "exec-1",
        "exitCode": 0,
        "signal": None,
        "timedOut": False,
        "output": output,
        "tail": output[-4_000:],
        "truncated": False,
        "workdir": "/home/ann",
        **members,
    }


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveEasel]:
    with LiveEasel(tmp_path, with_worker=False) as easel:
        yield easel


@rule("RS-67", "CV-32", "CV-33", "CV-34", "CV-36")
async def test_session_of_the_web_client(live: LiveEasel) -> None:
    transcript = Transcript(token=live.token)
    async with GsvPeer.open(live.base_url, "client", transcript) as client:
        hello = await client.connect(BROWSER, {"token": live.token})
        methods = set(hello["payload"]["features"]["methods"])
        names = ("list", "get", "create", "upsert", "patch", "delete", "open", "close", "action")
        assert {"tools.list", "tool.invoke", *(f"canvas.{name}" for name in names)} <= methods
        await client.call("canvas.list", {"limit": 200, "offset": 0})
        made = await client.call("canvas.create", {"title": "Deploy Cockpit!", "mode": "html"})
        canvas_id = made["payload"]["descriptor"]["canvasId"]
        await client.call("canvas.list", {"limit": 200, "offset": 0})
        named = {"canvasId": canvas_id, "agentId": "main"}
        await client.call("canvas.open", {**named, "clientId": BROWSER["id"]})
        patch = [{"op": "add", "path": "/service", "value": "api"}]
        await client.call(
            "canvas.patch",
            {**named, "expectedRevision": 1, "spec": SPEC, "statePatch": patch, "ownerSessionKey": "main"},
        )
        await client.event()
        await client.call("canvas.patch", {**named, "expectedRevision": 1, "title": "Stale"})
        await client.call("canvas.action", {"canvasId": canvas_id, "actionId": "begin"})
        for _ in range(3):
            await client.event()
        await client.call("canvas.get", {"canvasId": canvas_id})
        await client.call("tool.invoke", {"tool": "gsv__Echo", "args": {"value": [1, "two"]}})
        await client.call("chat.send", {"sessionKey": "agent:main:main", "message": "Hi", "runId": "r1"})
        await client.call("canvas.get", {"canvasId": canvas_id, "agentId": "other"})
        await client.call("canvas.delete", named)
        await client.event()
        await client.call("canvas.delete", named)
        await client.call("canvas.list", {"limit": 200, "offset": 0})
        assert client.unread_events == 0
    transcript.check(RECORDED / "web_client.txt")


@rule("RS-67", "RS-57")
async def test_session_of_the_node(live: LiveEasel) -> None:
    transcript = Transcript(token=live.token)
    with capture_log() as kept:
        async with GsvPeer.open(live.base_url, "client", transcript, f"?token={live.token}") as client:
            await client.connect(BROWSER, {})
            await client.call("canvas.create", {"title": "Atelier", "spec": ON_NODE, "mode": "html"})
            async with GsvPeer.open(live.base_url, "node", transcript) as node:
                hello = {"tools": [BASH], "nodeRuntime": RUNTIME}
                await node.connect(NODE, {"token": live.token}, **hello)
                await _run_commands(client, node)
                lost = await client.send(
                    "tool.invoke", {"tool": "node-atelier__Bash", "args": {"command": "x"}}
                )
                await node.event()
            await client.answer(lost)
            await client.call("tool.invoke", {"tool": "node-atelier__Bash", "args": {"command": "ls"}})
    transcript.check(RECORDED / "node.txt")
    assert sum(line.get("event") == "gateway.node_frame_ignored" for line in kept) == 1, "one line"


async def _run_commands(client: GsvPeer, node: GsvPeer) -> None:
    invoked = await client.send(
        "tool.invoke", {"tool": "node-atelier__Bash", "args": {"command": "uname", "timeout": 300_000}}
    )
    call = (await node.event())["payload"]
    await node.call("tool.result", {"callId": call["callId"], "result": result("Linux\n")})
    await client.answer(invoked)

    # Requests that Easel does not use are answered, and the connection goes on.
    await node.call("node.probe.result", {"probeId": "p1", "ok": True, "bins": {"git": True}})
    await node.call("node.exec.event", {"eventId": "e1", "sessionId": "exec-1", "event": "finished"})
    await node.call("logs.result", {"callId": "l1", "lines": ["a line"], "truncated": False})
    await node.call("transfer.complete", {"transferId": 1})
    await node.socket.send(b"\x01\x00\x00\x00chunk")
    await node.call("tool.result", {"callId": call["callId"], "result": "late"})

    # A long output, by an action; a value must be plain although `command` has no `x-shell`.
    acted = await client.send(
        "canvas.action", {"canvasId": "atelier", "actionId": "show", "input": {"folder": "a-b"}}
    )
    call = (await node.event())["payload"]
    long = "".join(f"file {number}\n" for number in range(18_000))[:200_000]
    await node.call("tool.result", {"callId": call["callId"], "result": result(long, truncated=True)})
    await client.answer(acted)

    # A command that goes on is no completed action.
    acted = await client.send(
        "canvas.action", {"canvasId": "atelier", "actionId": "show", "input": {"folder": "b"}}
    )
    call = (await node.event())["payload"]
    running = result("", status="running", sessionId="exec-2", exitCode=None)
    await node.call("tool.result", {"callId": call["callId"], "result": running})
    await client.answer(acted)
