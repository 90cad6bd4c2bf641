"""Live output and cancellation of an action whose tool is a node, on the same and on another instance."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.edges.gateway.action_fixtures import CanvasClient, call_tool, expect_refusal
from tests.edges.gateway.node_peer import NodePeer
from tests.edges.http.canvas_calls import read_stream
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import rule
from tests.support.gateway import GatewayClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.gateway import Heard

# Longer than any of these tests, so that polling cannot stand in for a notification.
LONG_POLL = 600.0


@pytest.fixture(scope="module")
def two_instances(tmp_path_factory: pytest.TempPathFactory, module_database_url: str) -> Iterator[LiveEasel]:
    """Two instances that learn of each other's changes by notifications only."""
    settings = {
        "poll_seconds": LONG_POLL,
        "node_ttl_seconds": 3 * LONG_POLL,
        "claim_seconds": 3 * LONG_POLL,
    }
    with LiveEasel(
        tmp_path_factory.mktemp("easel"), module_database_url, edges=2, with_worker=False, settings=settings
    ) as live:
        yield live


async def events_until(client: GatewayClient, name: str) -> list[Heard]:
    """Return the events up to the first with this name."""
    events = [await client.event()]
    while events[-1].event != f"canvas.action.{name}":
        events.append(await client.event())
    return events


def event_types(events: list[Heard]) -> list[str]:
    return [event.event.removeprefix("canvas.").removeprefix("action.") for event in events]


@rule("CV-03", "CV-23", "CV-37", "CV-38", "CV-42", "CV-48")
@pytest.mark.parametrize("at", [0, 1], ids=["here", "elsewhere"])
async def test_output_and_cancel_reach_a_node_on_either_instance(two_instances: LiveEasel, at: int) -> None:
    async with (
        GatewayClient.connected(two_instances.base_url, two_instances.token, new_session()) as client,
        NodePeer.connected(two_instances, f"printer-{at}", at=at) as node,
    ):
        canvas = await CanvasClient.create(
            client, {"go": call_tool(f"printer-{at}__Bash", args={"command": "print"}, saveAs="x")}
        )
        await canvas.listen()
        request = asyncio.create_task(canvas.run("go"))
        call_id = (await node.receive_call())["callId"]
        await node.client.call("tool.progress", callId=call_id, text="page 1\n")
        started, output = await events_until(client, "output")
        assert (output.payload["text"], output.payload["eventId"]) == ("page 1\n", started.payload["eventId"])
        assert not request.done()
        await node.client.call("tool.progress", callId=call_id, text="page 2\n")
        await node.answer(call_id, result={"pages": 2})
        assert (await request)["result"] == {"pages": 2}
        events = await events_until(client, "finished")
        assert (event_types(events), events[0].payload["text"]) == (
            ["output", "updated", "finished"],
            "page 2\n",
        )
        # Every transport is a tail of the same log.
        frames = await asyncio.to_thread(read_stream, two_instances, canvas.name, 6)
        assert [frame["event"] for frame in frames][2:4] == ["canvas.action.output"] * 2

        request = asyncio.create_task(canvas.run("go"))
        call_id = (await node.receive_call())["callId"]
        [started] = await events_until(client, "started")
        cancel = {"canvasId": canvas.name, "eventId": started.payload["eventId"]}
        answer = await client.call("canvas.cancel", **cancel)
        assert answer == {"status": "cancelled", "eventId": started.payload["eventId"], "revision": 2}
        assert await node.receive_cancel() == call_id
        problem = await expect_refusal(request)
        assert (problem.code, problem.error["name"]) == (409, "CANCELLED")
        assert event_types(await events_until(client, "failed")) == ["failed"]
        again = await expect_refusal(client.call("canvas.cancel", **cancel))
        assert (again.code, again.error["name"]) == (409, "NOT_RUNNING")
        late = await node.client.call("tool.progress", callId=call_id, text="page 3\n")
        assert late.get("dropped"), "the execution was cancelled"
