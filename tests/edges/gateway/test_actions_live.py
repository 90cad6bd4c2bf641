"""What an action says while it runs, and stopping it: real commands of a real Bash, tool nodes here and on the other instance, over `/ws` and by request."""

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
from tests.support.sse import Event, Parser
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

LONG_POLL = 600.0
# Longer than any of these tests, and than anybody waits in them: whatever is payload was payload by the bell.


@pytest.fixture(scope="module", params=("sqlite", "postgres"))
def bashing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    """With the machine's own Bash; what it isolates is tested elsewhere."""
    url = request.getfixturevalue("module_database_url") if request.param == "postgres" else ""
    settings = {"sandbox_mode": "logical", "max_live_output_bytes": 5_000}
    with LiveEasel(tmp_path_factory.mktemp("easel"), url, settings=settings, with_worker=False) as live:
        yield live


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory, module_database_url: str) -> Iterator[LiveEasel]:
    """Two instances that tell each other by the bell alone."""
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
async def hand(bashing: LiveEasel) -> AsyncIterator[GatewayClient]:
    async with GatewayClient.connected(bashing.base_url, bashing.token, new_session()) as connected:
        yield connected


def runs(command: str, **options: Any) -> dict[str, Any]:
    return call_tool("local__Bash", args={"command": command}, **options)


async def until(client: GatewayClient, *names: str) -> list[Heard]:
    """All that is events up to one of these."""
    events: list[Heard] = []
    while not events or events[-1].event.removeprefix("canvas.action.") not in names:
        events.append(await client.event())
    return events


def types(events: list[Heard]) -> list[str]:
    return [event.event.removeprefix("canvas.").removeprefix("action.") for event in events]


def text(events: list[Heard]) -> str:
    return "".join(event.payload["text"] for event in events if event.event == "canvas.action.output")


def commands(mark: str) -> list[psutil.Process]:
    alive = [
        process
        for process in psutil.process_iter(["cmdline", "status"])
        if process.info["status"] != psutil.STATUS_ZOMBIE
    ]
    return [process for process in alive if mark in " ".join(process.info["cmdline"] or [])]


def streamed(easel: LiveEasel, name: str) -> str:
    """The same as the SSE stream of the canvas has it."""
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


async def is_gone(mark: str, asked_at: float) -> None:
    """All of it, by the time that a stop is answered; unless it is so slow to end that nobody waits for it any more."""
    if time.monotonic() - asked_at < GRACE_SECONDS:
        assert commands(mark) == []

    async def none() -> bool:
        return not commands(mark)

    await wait_for(none)


async def running(canvas: CanvasClient, action: str, **options: Any) -> tuple[asyncio.Task[Any], str]:
    """Under way, and it has said something."""
    await canvas.listen()
    request = asyncio.create_task(canvas.run(action, **options))
    events = await until(canvas.client, "output")
    return request, events[0].payload["eventId"]


@rule("CV-37", "CV-38", "CV-42")
async def test_a_long_command_is_seen_while_it_runs(
    hand: GatewayClient, bashing: LiveEasel, tmp_path: Path
) -> None:
    """It says its next word only when the one before was events."""
    go, on = tmp_path / "go", tmp_path / "on"
    wait = "until [ -e {0} ]; do sleep 0.05; done"
    canvas = await CanvasClient.create(
        hand,
        {"go": runs(f"echo one; {wait.format(go)}; echo two; {wait.format(on)}; echo three", saveAs="x")},
    )
    await canvas.listen()
    request = asyncio.create_task(canvas.run("go"))
    first = await until(hand, "output")
    assert (types(first), text(first), request.done()) == (["started", "output"], "one\n", False)
    go.touch()
    second = await until(hand, "output")
    assert (types(second), text(second), request.done()) == (["output"], "two\n", False)
    on.touch()
    answer = await request
    rest = await until(hand, "finished")
    assert text(first + second + rest) == answer["result"]["output"] == "one\ntwo\nthree\n"
    assert types(rest) == ["output", "updated", "finished"]
    [output] = [event for event in first if event.event.endswith("output")]
    assert (output.payload["actionId"], output.payload["eventId"], output.payload["revision"]) == (
        "go",
        answer["eventId"],
        1,
    )
    assert output.seq is not None
    # Every transport is a tail of the same log.
    assert await asyncio.to_thread(streamed, bashing, canvas.name) == "one\ntwo\nthree\n"


async def test_a_flood_of_words_is_cut_and_the_result_has_both_ends(hand: GatewayClient) -> None:
    canvas = await CanvasClient.create(hand, {"go": runs("seq 1 20000")})
    await canvas.listen()
    answer = await canvas.run("go")
    events = await until(hand, "finished")
    outputs = [event.payload for event in events if event.event == "canvas.action.output"]
    assert [output.get("cut", False) for output in outputs] == [False] * (len(outputs) - 1) + [True]
    assert sum(len(output["text"]) for output in outputs[:-1]) == 5_000
    assert answer["result"]["output"].endswith("20000\n")


@rule("CV-23", "CV-42", "CV-48")
@case("X10")
async def test_a_stop_ends_the_command_with_all_that_it_started(
    hand: GatewayClient, bashing: LiveEasel
) -> None:
    mark = f"3141.{secrets.randbelow(10**9)}"  # another process of the suite may look for its own at the same time
    canvas = await CanvasClient.create(
        hand, {"go": runs(f"sleep {mark} & (setsid sleep {mark} &) ; echo begun; sleep {mark}", saveAs="x")}
    )
    request, event_id = await running(canvas, "go", requestId="r")

    async def have_begun() -> bool:
        return len(commands(mark)) >= 3

    await wait_for(have_begun)
    asked_at = time.monotonic()
    answer = await hand.call("canvas.cancel", canvasId=canvas.name, eventId=event_id)
    assert answer == {"status": "cancelled", "eventId": event_id, "revision": 1}
    await is_gone(mark, asked_at)
    problem = await expect_refusal(request)
    assert (problem.code, problem.error["name"], problem.details["eventId"]) == (409, "CANCELLED", event_id)
    assert "Cancelled by owner" in problem.error["message"]
    assert types(await until(hand, "failed"))[-1] == "failed"
    assert await canvas.state() == {}
    [record] = await canvas.records()
    assert (record["status"], record["error"]["name"]) == ("failed", "CANCELLED")
    again = await expect_refusal(hand.call("canvas.cancel", canvasId=canvas.name, eventId=event_id))
    assert (again.code, again.error["name"]) == (409, "NOT_RUNNING")
    assert (await expect_refusal(canvas.run("go", requestId="r"))).error["name"] == "CANCELLED"

    async def is_audited() -> bool:
        return (
            len(audit_records(bashing, "canvas.cancelled", canvas.name))
            == 1
            == len(audit_records(bashing, "canvas.action", canvas.name))
        )

    await wait_for(is_audited)


@rule("CV-23")
async def test_a_time_that_the_tool_is_not_given_is_told_when_the_spec_is_stored(hand: GatewayClient) -> None:
    spec = {
        "version": 1,
        "toolPolicy": {"allow": ["local__Bash"]},
        "actions": {"go": runs("true", timeoutMs=3_600_000)},
    }
    stored = await hand.call("canvas.create", canvasId=new_session(), spec=spec)
    assert [
        "EASEL_TOOL_TIMEOUT_SECONDS" in warning or "`timeout`" in warning for warning in stored["warnings"]
    ] == [
        True,
        True,
    ]


# --- on the other instance ----------------------------------------------------------------------------------------------


@rule("CV-03", "CV-37")
@pytest.mark.parametrize("at", [0, 1], ids=["here", "elsewhere"])
async def test_what_a_node_says_is_seen_wherever_it_is_connected_and_a_stop_reaches_it(
    apart: LiveEasel, at: int
) -> None:
    async with (
        GatewayClient.connected(apart.instances[0].base_url, apart.token, new_session()) as action_client,
        NodePeer.connected(apart, f"printer-{at}", at=at) as node,
    ):
        canvas = await CanvasClient.create(
            action_client, {"go": call_tool(f"printer-{at}__Bash", args={"command": "print"}, saveAs="x")}
        )
        await action_client.call("canvas.open", canvasId=canvas.name)
        await canvas.listen()
        request = asyncio.create_task(canvas.run("go"))
        call = await node.receive_call()
        await node.client.call("tool.progress", callId=call["callId"], text="page 1\n")
        events = await until(action_client, "output")
        assert (types(events), text(events)) == (["started", "output"], "page 1\n")
        await node.client.call("tool.progress", callId=call["callId"], text="page 2\n")
        await node.answer(call["callId"], result={"pages": 2})
        assert (await request)["result"] == {"pages": 2}
        events = await until(action_client, "finished")
        assert (types(events), text(events)) == (["output", "updated", "finished"], "page 2\n")

        request = asyncio.create_task(canvas.run("go"))
        call = await node.receive_call()
        [started] = await until(action_client, "started")
        await action_client.call("canvas.cancel", canvasId=canvas.name, eventId=started.payload["eventId"])
        assert await node.receive_cancel() == call["callId"]
        assert (await expect_refusal(request)).error["name"] == "CANCELLED"
        assert (await node.client.call("tool.progress", callId=call["callId"], text="page 3\n")).get(
            "dropped"
        ), "nobody listens any more"
