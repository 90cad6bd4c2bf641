"""Secrets in the actions of canvases: used by tools, and found in no answer, table, log or event. RS-66"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.tool.definition import ToolDefinition
from easel.ids import OWNER, RunId
from tests.edges.gateway.action_fixtures import ANY, TestTool, expect_refusal, run_inside
from tests.edges.gateway.node_peer import NodePeer
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import case, rule
from tests.support.gateway import GatewayClient, Refused
from tests.support.principals import agent_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from easel.core.tool.context import ToolContext

VALUE = 'Leak42 "quoted" and /path+plus=x'
STRICT: dict[str, Any] = {"type": "object", "properties": {"token": {"type": "string", "maxLength": 3}}}


def new_leaky_tools() -> list[TestTool]:
    """Return tools that print, return, raise and cannot take what they are given."""

    async def echo(args: Mapping[str, Any], context: ToolContext) -> Any:
        if context.on_output is not None:
            for piece in (args["token"][:9], args["token"][9:] + "\n"):
                context.on_output(piece)
                await asyncio.sleep(0)
        return {args["token"]: [args["token"]]}

    async def crash(args: Mapping[str, Any], context: ToolContext) -> Any:
        raise ValueError(f"bad token {args['token']}")

    return [
        TestTool(ToolDefinition("leak__Echo", "For a test.", ANY), echo),
        TestTool(ToolDefinition("leak__Crash", "For a test.", ANY), crash),
        TestTool(ToolDefinition("leak__Strict", "For a test.", STRICT), echo),
    ]


@pytest.fixture(scope="module")
def easel(
    tmp_path_factory: pytest.TempPathFactory, package_log: list[dict[str, Any]], module_database_url: str
) -> Iterator[LiveEasel]:
    """Two instances."""
    settings = {"poll_seconds": 0.1, "secret_key": "k" * 32}
    folder = tmp_path_factory.mktemp("easel")
    with LiveEasel(folder, module_database_url, 2, False, settings, new_leaky_tools()) as live:
        package_log.clear()
        for name in ("S00", "S01"):
            assert live.ask("PUT", f"/api/secrets/{name}", json={"value": VALUE}).status_code == 204
        yield live


def call(tool: str, name: str, **members: Any) -> dict[str, Any]:
    return {"kind": "tool.call", "tool": tool, "args": {"token": {"$secret": name}}, **members}


def spec_of(actions: dict[str, Any], names: list[str], **members: Any) -> dict[str, Any]:
    tools = sorted({action["tool"] for action in actions.values() if "tool" in action})
    return {"toolPolicy": {"allow": tools, "secrets": names}, "actions": actions, **members}


async def new_canvas(client: GatewayClient, spec: dict[str, Any]) -> str:
    name = new_session()
    await client.call("canvas.create", canvasId=name, spec=spec)
    return name


def tables_of(easel: LiveEasel) -> dict[str, str]:
    """Return the rows of every table as text."""
    names = easel.sql(
        "select table_name as name from information_schema.tables where table_schema = 'public'"
    )
    return {row["name"]: str(easel.sql(f'select * from "{row["name"]}"')) for row in names}


@rule("RS-66")
@case("P6")
async def test_secret_reaches_its_tool_on_any_instance_and_is_found_nowhere_else(
    easel: LiveEasel, package_log: list[dict[str, Any]]
) -> None:
    tools = ("leak__Echo", "leak__Crash", "leak__Strict", "far__Echo")
    actions = {tool: call(tool, "S00", confirm="never", saveAs=f"saved.{tool}") for tool in tools}
    found: dict[str, Any] = {}
    async with (
        GatewayClient.connected(easel.base_url, easel.token, new_session()) as client,
        NodePeer.connected(easel, "far", at=1) as node,
    ):
        canvas = await new_canvas(client, spec_of(actions, ["S00"], state={"saved": {}}))
        for tool in tools:
            run = client.call("canvas.action", canvasId=canvas, actionId=tool, requestId=tool)
            running = asyncio.create_task(run)
            if tool == "far__Echo":
                received = await node.receive_call()
                assert received["args"] == {"token": VALUE}
                for piece in (VALUE[:9], VALUE[9:]):
                    await node.client.call("tool.progress", callId=received["callId"], text=piece)
                await node.answer(received["callId"], result=[VALUE])
            try:
                found[tool] = await running
                assert "[secret S0" in json.dumps(found[tool])
            except Refused as problem:
                assert tool in ("leak__Crash", "leak__Strict")
                found[tool] = problem.error
        snapshot = found["snapshot"] = await client.call("canvas.get", canvasId=canvas)
        await client.call("canvas.subscribe", canvasId=canvas, afterSeq=0)
        found["events"] = [event.payload for event in await client.events(snapshot["descriptor"]["lastSeq"])]
        found["records"] = await client.call("canvas.records", canvasId=canvas)
    places = {**{name: str(value) for name, value in found.items()}, **tables_of(easel)}
    places |= {"log": str(package_log), "audit": easel.get("/api/audit?limit=200").text}
    assert "bad token [secret S0" in places["audit"]
    assert [place for place, text in places.items() if "Leak42" in text] == []


@rule("RS-66")
async def test_missing_and_undeclared_secrets_are_explained(easel: LiveEasel) -> None:
    async with GatewayClient.connected(easel.base_url, easel.token, new_session()) as client:
        missing = {"act": call("leak__Echo", "NOT_SET", confirm="never")}
        name = new_session()
        created = await client.call("canvas.create", canvasId=name, spec=spec_of(missing, ["NOT_SET"]))
        assert any("easel secret set NOT_SET" in warning for warning in created["warnings"])
        outcome = await expect_refusal(client.call("canvas.action", canvasId=name, actionId="act"))
        assert (outcome.code, "`easel secret set NOT_SET`" in str(outcome)) == (400, True)
        undeclared = client.call("canvas.create", canvasId=new_session(), spec=spec_of(missing, []))
        refused = await expect_refusal(undeclared)
        assert (refused.code, "toolPolicy.secrets does not list" in str(refused)) == (400, True)


@rule("RS-73")
@pytest.mark.bwrap
async def test_value_that_an_agent_wrote_makes_an_accepted_call_with_a_secret_ask(easel: LiveEasel) -> None:
    action = {
        "kind": "tool.call",
        "tool": "local__Bash",
        "confirm": "never",
        "secrets": ["S01"],
        "args": {"command": "echo {{state.id}} {{input.note}}"},
        "missing": "empty",
        "saveAs": "last",
    }
    again = {**action, "args": {"command": "echo {{state.last.finishedAt}}"}}
    patch = [{"op": "replace", "path": "/id", "value": "b"}]
    async with GatewayClient.connected(easel.base_url, easel.token, new_session()) as client:
        canvas = await new_canvas(
            client, spec_of({"act": action, "again": again}, ["S01"], state={"id": "a"})
        )

        async def press(name: str = "act") -> dict[str, Any]:
            return await client.call("canvas.action", canvasId=canvas, actionId=name, input={"note": "n"})

        assert (await press())["status"] == "completed"
        # The second one has the result of a tool.
        because = (await press("again"))["resolved"]["because"]
        assert "state.last.finishedAt was written by the result of local__Bash" in because
        agent, canvases = agent_of(OWNER, RunId("run_1")), easel.instances[0].services.canvases
        written = canvases.patch(
            agent, canvas, state_patch=patch, spec=None, title=None, expected_revision=None
        )
        await run_inside(easel, written)
        asked = await press()
        assert asked["status"] == "needs_confirmation"
        assert "state.id was written by agent main" in asked["resolved"]["because"]
        done = await client.call("canvas.confirm", confirmationId=asked["confirmationId"], approve=True)
        assert done["result"]["output"] == "b n\n"
        # An acceptance ends it.
        revision = (await client.call("canvas.get", canvasId=canvas))["revision"]
        await client.call("canvas.accept", canvasId=canvas, revision=revision)
        assert (await press())["result"]["output"] == "b n\n"
