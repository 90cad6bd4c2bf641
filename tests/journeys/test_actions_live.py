"""Output and stops of actions across processes: two APIs on Postgres, a real Bash, a real tool node, and an owner that is killed meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psutil

from tests.edges.gateway.acting import Board, refused
from tests.journeys.test_actions import REASON, board_on, made, pressed, told
from tests.journeys.test_nodes import start_node
from tests.requirements import case, rule
from tests.support.standstill import Stopwatch
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.gateway import GatewayClient, Heard
    from tests.support.processes import Launcher

AT_ONCE_SECONDS = 3.0
# "at once", seen from outside and on a busy machine; the hold on an execution would last for minutes.
CLAIM_SECONDS = 5.0
# Whoever is to be quicker than the end of a dead instance's hold has most of this.
FOREVER = {"CLAIM_SECONDS": "300", "SANDBOX_MODE": "logical"}


def runs(tool: str, command: str) -> dict[str, Any]:
    return {
        "kind": "tool.call",
        "tool": tool,
        "args": {"command": command},
        "confirm": "never",
        "saveAs": "x",
    }


def is_running(mark: str) -> bool:
    return any(
        mark in " ".join(one.info["cmdline"] or [])
        for one in psutil.process_iter(["cmdline", "status"])
        if one.info["status"] != "zombie"
    )


async def until(client: GatewayClient, name: str) -> list[Heard]:
    heard: list[Heard] = []
    while not heard or heard[-1].event != f"canvas.action.{name}":
        heard.append(await client.event())
    return heard


async def stopped_from(there: Board, press: asyncio.Task[Any], mark: str) -> None:
    """It is seen there, stopped from there, and gone with all that it started."""
    *_, output = await until(there.client, "output")
    assert output.payload["text"].startswith("begun")
    assert is_running(mark)
    watch = Stopwatch()
    answer = await there.client.call("canvas.cancel", canvasId=there.name, eventId=output.payload["eventId"])
    assert answer["status"] == "cancelled"
    assert (await refused(press)).error["name"] == "CANCELLED"

    async def is_gone() -> bool:
        return not is_running(mark)

    await wait_for(is_gone)
    assert watch.seconds < AT_ONCE_SECONDS
    assert [one.event for one in await until(there.client, "failed")] == ["canvas.action.failed"]
    assert "x" not in await there.state()


@rule("CV-23", "CV-37", "CV-42")
async def test_a_command_is_seen_and_stopped_from_the_other_instance(launcher: Launcher) -> None:
    launcher.settings |= FOREVER
    first, second = launcher.ready(launcher.api(), launcher.api())
    mark = f"1414.{first.pid}"
    name = await made(first, {"go": runs("local__Bash", f"echo begun; sleep {mark} & sleep {mark}")})
    async with board_on(first, name) as here, board_on(second, name) as there:
        await there.listen()
        await stopped_from(there, await pressed(here, "go"), mark)


@rule("CV-03", "CV-23", "CV-37")
async def test_a_node_on_the_other_instance_is_heard_and_stopped(launcher: Launcher, tmp_path: Path) -> None:
    launcher.settings |= FOREVER
    first, second = launcher.ready(launcher.api(), launcher.api())
    folder = tmp_path / "root"
    folder.mkdir()
    start_node(launcher, f"ws{second.base_url.removeprefix('http')}/ws", folder)
    mark = f"1732.{first.pid}"
    name = await made(first, {"go": runs("laptop__Bash", f"echo begun; sleep {mark}")})
    async with board_on(first, name) as here:

        async def is_there() -> bool:
            return any(
                tool["name"] == "laptop__Bash" for tool in (await here.client.call("tools.list"))["tools"]
            )

        await wait_for(is_there)
        async with board_on(second, name) as there:
            await there.listen()
            await stopped_from(there, await pressed(here, "go"), mark)


@rule("CV-23", "CV-42")
@case("D1")
async def test_a_stop_and_the_death_of_its_instance_are_one_end(launcher: Launcher) -> None:
    """A second action is lost with its instance: when that is told, whoever wanted to tell it of the first one too would have."""
    launcher.settings |= {"CLAIM_SECONDS": str(CLAIM_SECONDS), "SANDBOX_MODE": "logical"}
    first, second = launcher.ready(launcher.api(), launcher.api())
    sleeps = {"kind": "tool.call", "tool": "gsv__Sleep", "args": {"ms": 60_000}}
    name, witness = await made(first, {"go": sleeps}), await made(first, {"go": sleeps})
    async with board_on(second, name) as there, board_on(second, witness) as beside:
        async with board_on(first, name) as here, board_on(first, witness) as lost:
            presses = [await pressed(here, "go"), await pressed(lost, "go")]
            [record] = await there.records()
            first.kill()
            await asyncio.gather(*presses, return_exceptions=True)
        answer = await there.client.call("canvas.cancel", canvasId=name, eventId=record["eventId"])
        assert answer["status"] == "cancelled", "whoever ran it is not needed for that"

        async def is_told() -> bool:
            return (await beside.records())[0]["status"] == "failed"

        await wait_for(is_told)
        assert REASON in (await beside.records())[0]["error"]["message"]
    (back,) = launcher.ready(launcher.again(first))
    async with board_on(back, name) as here:
        assert await told(here) == ["started", "failed"]
        [record] = await here.records()
        assert record["error"]["name"] == "CANCELLED"
