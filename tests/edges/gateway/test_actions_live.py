"""Live output and cancellation with a real Bash and with tool nodes, on one and on two instances."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, Any

import httpx2
import psutil
import pytest
import pytest_asyncio

from easel.host.actions.executor import GRACE_SECONDS
from tests.edges.gateway.action_fixtures import CanvasClient, audit_records, call_tool, expect_refusal
from tests.edges.gateway.node_peer import NodePeer
from tests.edges.http.live import WAIT_SECONDS, LiveEasel, in_time, new_session
from tests.requirements import case, rule
from tests.support.gateway import GatewayClient, Heard
from tests.support.length import DATABASES
from tests.support.sse import Event, Parser
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

# Longer than any of these tests, so that polling cannot stand in for a notification.
LONG_POLL = 600.0


@pytest.fixture(scope="module", params=DATABASES)
def easel_with_bash(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveEasel]:
    """An Easel with Bash; isolation is tested elsewhere."""
    url = request.getfixturevalue("module_database_url") if request.param == "postgres" else ""
    settings = {"sandbox_mode": "logical"}
    with LiveEasel(tmp_path_factory.mktemp("easel"), url, settings=settings, with_worker=False) as live:
        yield live


@pytest.fixture(scope="module")
def two_instances(tmp_path_factory: pytest.TempPathFactory, module_database_url: str) -> Iterator[LiveEasel]:
    """Two instances that learn of each other's changes by notifications only."""
    settings = {
        "sandbox_mode": "logical",
        "poll_seconds": LONG_POLL,
        "node_ttl_seconds": 3 * LONG_POLL,
        "claim_seconds": 3 * LONG_POLL,
    }
    with LiveEasel(
        tmp_path_factory.mktemp("easel"), module_database_url, edges=2, with_worker=False, settings=settings
    ) as live:
        yield live


@pytest_asyncio.fixture
async def client(easel_with_bash: LiveEasel) -> AsyncIterator[GatewayClient]:
    async with GatewayClient.connected(
        easel_with_bash.base_url, easel_with_bash.token, new_session()
    ) as connected:
        yield connected


def run_command(command: str, **options: Any) -> dict[str, Any]:
    return call_tool("local__Bash", args={"command": command}, **options)


async def events_until(client: GatewayClient, *names: str) -> list[Heard]:
    """Return the events up to the first with one of these names."""
    events: list[Heard] = []
    while not events or events[-1].event.removeprefix("canvas.action.") not in names:
        events.append(await client.event())
    return events


def event_types(events: list[Heard]) -> list[str]:
    return [event.event.removeprefix("canvas.").removeprefix("action.") for event in events]


def output_text(events: list[Heard]) -> str:
    return "".join(event.payload["text"] for event in events if event.event == "canvas.action.output")


def processes(mark: str) -> list[psutil.Process]:
    alive = [
        process
        for process in psutil.process_iter(["cmdline", "status"])
        if process.info["status"] != psutil.STATUS_ZOMBIE
    ]
    return [process for process in alive if mark in " ".join(process.info["cmdline"] or [])]


def sse_output(easel: LiveEasel, name: str) -> str:
    """Return the output from the SSE stream of the canvas."""
    parser, found = Parser(), ""
    headers = {**easel.bearer, "last-event-id": "0"}
    with httpx2.stream(
        "GET", f"{easel.base_url}/sse/canvas/{name}", headers=headers, timeout=WAIT_SECONDS
    ) as answer:
        for chunk in in_time(answer.iter_bytes()):
            for event in parser.feed(chunk):
                if isinstance(event, Event) and event.type == "canvas.action.output":
                    found += event.data["text"]
                if isinstance(event, Event) and event.type == "canvas.action.finished":
                    return found
    raise AssertionError(found)


async def check_ended(mark: str, cancelled_at: float) -> None:
    """Check that the command has ended when the cancel is answered, unless it takes longer than the grace
    period.
    """
    if time.monotonic() - cancelled_at < GRACE_SECONDS:
        assert processes(mark) == []

    async def none() -> bool:
        return not processes(mark)

    await wait_for(none)


async def start(canvas: CanvasClient, action: str, **options: Any) -> tuple[asyncio.Task[Any], str]:
    """Start an action and wait for its first output."""
    await canvas.listen()
    request = asyncio.create_task(canvas.run(action, **options))
    events = await events_until(canvas.client, "output")
    return request, events[0].payload["eventId"]


@rule("CV-37", "CV-38", "CV-42")
async def test_output_of_a_command_is_streamed_while_it_runs(
    client: GatewayClient, easel_with_bash: LiveEasel, tmp_path: Path
) -> None:
    """The command waits between its outputs until the test has received the one before."""
    go, on = tmp_path / "go", tmp_path / "on"
    wait = "until [ -e {0} ]; do sleep 0.05; done"
    canvas = await CanvasClient.create(
        client,
        {
            "go": run_command(
                f"echo one; {wait.format(go)}; echo two; {wait.format(on)}; echo three", saveAs="x"
            )
        },
    )
    await canvas.listen()
    request = asyncio.create_task(canvas.run("go"))
    first = await events_until(client, "output")
    assert (event_types(first), output_text(first), request.done()) == (["started", "output"], "one\n", False)
    go.touch()
    second = await events_until(client, "output")
    assert (event_types(second), output_text(second), request.done()) == (["output"], "two\n", False)
    on.touch()
    answer = await request
    rest = await events_until(client, "finished")
    assert output_text(first + second + rest) == answer["result"]["output"] == "one\ntwo\nthree\n"
    assert event_types(rest) == ["output", "updated", "finished"]
    [output] = [event for event in first if event.event.endswith("output")]
    assert (output.payload["actionId"], output.payload["eventId"], output.payload["revision"]) == (
        "go",
        answer["eventId"],
        1,
    )
    assert output.seq is not None
    # Every transport is a tail of the same log.
    assert await asyncio.to_thread(sse_output, easel_with_bash, canvas.name) == "one\ntwo\nthree\n"


@rule("CV-23", "CV-42", "CV-48")
@case("X10")
async def test_cancel_ends_the_command_with_all_its_processes(
    client: GatewayClient, easel_with_bash: LiveEasel
) -> None:
    mark = f"3141.{secrets.randbelow(10**9)}"  # unique among parallel tests
    canvas = await CanvasClient.create(
        client,
        {
            "go": run_command(
                f"sleep {mark} & (setsid sleep {mark} &) ; echo started; sleep {mark}", saveAs="x"
            )
        },
    )
    request, event_id = await start(canvas, "go", requestId="r")

    async def have_started() -> bool:
        return len(processes(mark)) >= 3

    await wait_for(have_started)
    cancelled_at = time.monotonic()
    answer = await client.call("canvas.cancel", canvasId=canvas.name, eventId=event_id)
    assert answer == {"status": "cancelled", "eventId": event_id, "revision": 1}
    await check_ended(mark, cancelled_at)
    problem = await expect_refusal(request)
    assert (problem.code, problem.error["name"], problem.details["eventId"]) == (409, "CANCELLED", event_id)
    assert "Cancelled by owner" in problem.error["message"]
    assert event_types(await events_until(client, "failed"))[-1] == "failed"
    assert await canvas.state() == {}
    [record] = await canvas.records()
    assert (record["status"], record["error"]["name"]) == ("failed", "CANCELLED")
    again = await expect_refusal(client.call("canvas.cancel", canvasId=canvas.name, eventId=event_id))
    assert (again.code, again.error["name"]) == (409, "NOT_RUNNING")
    assert (await expect_refusal(canvas.run("go", requestId="r"))).error["name"] == "CANCELLED"

    async def is_audited() -> bool:
        return (
            len(audit_records(easel_with_bash, "canvas.cancelled", canvas.name))
            == 1
            == len(audit_records(easel_with_bash, "canvas.action", canvas.name))
        )

    await wait_for(is_audited)


# --- two instances --------------------------------------------------------------------------------


@rule("CV-03", "CV-37")
@pytest.mark.parametrize("at", [0, 1], ids=["here", "elsewhere"])
async def test_output_and_cancel_reach_a_node_on_either_instance(two_instances: LiveEasel, at: int) -> None:
    async with (
        GatewayClient.connected(
            two_instances.instances[0].base_url, two_instances.token, new_session()
        ) as action_client,
        NodePeer.connected(two_instances, f"printer-{at}", at=at) as node,
    ):
        canvas = await CanvasClient.create(
            action_client, {"go": call_tool(f"printer-{at}__Bash", args={"command": "print"}, saveAs="x")}
        )
        await action_client.call("canvas.open", canvasId=canvas.name)
        await canvas.listen()
        request = asyncio.create_task(canvas.run("go"))
        call = await node.receive_call()
        await node.client.call("tool.progress", callId=call["callId"], text="page 1\n")
        events = await events_until(action_client, "output")
        assert (event_types(events), output_text(events)) == (["started", "output"], "page 1\n")
        await node.client.call("tool.progress", callId=call["callId"], text="page 2\n")
        await node.answer(call["callId"], result={"pages": 2})
        assert (await request)["result"] == {"pages": 2}
        events = await events_until(action_client, "finished")
        assert (event_types(events), output_text(events)) == (["output", "updated", "finished"], "page 2\n")

        request = asyncio.create_task(canvas.run("go"))
        call = await node.receive_call()
        [started] = await events_until(action_client, "started")
        await action_client.call("canvas.cancel", canvasId=canvas.name, eventId=started.payload["eventId"])
        assert await node.receive_cancel() == call["callId"]
        assert (await expect_refusal(request)).error["name"] == "CANCELLED"
        assert (await node.client.call("tool.progress", callId=call["callId"], text="page 3\n")).get(
            "dropped"
        ), "the execution was cancelled"
