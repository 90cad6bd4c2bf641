"""Output and cancellation of actions across processes: two APIs on Postgres, a real Bash, a real tool node,
and an owner that is killed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psutil

from tests.edges.gateway.action_fixtures import CanvasClient, expect_refusal
from tests.journeys.test_actions import REASON, action_events, board_on, create, start_action
from tests.journeys.test_nodes import start_node
from tests.requirements import case, rule
from tests.support.standstill import Stopwatch
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.gateway import GatewayClient, Heard
    from tests.support.processes import Launcher

AT_ONCE_SECONDS = 3.0
# "At once", measured from outside on a busy machine; the claim of an execution lasts for minutes.
CLAIM_SECONDS = 5.0
# Time for a cancellation that must finish before the claim of a killed instance expires.
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


async def stopped_from(there: CanvasClient, press: asyncio.Task[Any], mark: str) -> None:
    """Check that the action is seen and cancelled from there, and that its processes have ended."""
    *_, output = await until(there.client, "output")
    assert output.payload["text"].startswith("begun")
    assert is_running(mark)
    watch = Stopwatch()
    answer = await there.client.call("canvas.cancel", canvasId=there.name, eventId=output.payload["eventId"])
    assert answer["status"] == "cancelled"
    assert (await expect_refusal(press)).error["name"] == "CANCELLED"

    async def is_gone() -> bool:
        return not is_running(mark)

    await wait_for(is_gone)
    assert watch.seconds < AT_ONCE_SECONDS
    assert [one.event for one in await until(there.client, "failed")] == ["canvas.action.failed"]
    assert "x" not in await there.state()


@rule("CV-23", "CV-37", "CV-42")
async def test_output_of_a_command_is_seen_and_cancelled_from_the_other_instance(launcher: Launcher) -> None:
    launcher.settings |= FOREVER
    first, second = launcher.ready(launcher.api(), launcher.api())
    mark = f"1414.{first.pid}"
    name = await create(first, {"go": runs("local__Bash", f"echo begun; sleep {mark} & sleep {mark}")})
    async with board_on(first, name) as here, board_on(second, name) as there:
        await there.listen()
        await stopped_from(there, await start_action(here, "go"), mark)


@rule("CV-03", "CV-23", "CV-37")
async def test_output_of_a_node_on_the_other_instance_is_seen_and_cancelled(
    launcher: Launcher, tmp_path: Path
) -> None:
    launcher.settings |= FOREVER
    first, second = launcher.ready(launcher.api(), launcher.api())
    folder = tmp_path / "root"
    folder.mkdir()
    start_node(launcher, f"ws{second.base_url.removeprefix('http')}/ws", folder)
    mark = f"1732.{first.pid}"
    name = await create(first, {"go": runs("laptop__Bash", f"echo begun; sleep {mark}")})
    async with board_on(first, name) as here:

        async def is_there() -> bool:
            return any(
                tool["name"] == "laptop__Bash" for tool in (await here.client.call("tools.list"))["tools"]
            )

        await wait_for(is_there)
        async with board_on(second, name) as there:
            await there.listen()
            await stopped_from(there, await start_action(here, "go"), mark)


@rule("CV-23", "CV-42")
@case("D1")
async def test_cancel_and_crash_of_the_instance_give_one_end(launcher: Launcher) -> None:
    """A second action is lost with the instance: when that one is recorded, a duplicate end of the first one
    would be too.
    """
    launcher.settings |= {"CLAIM_SECONDS": str(CLAIM_SECONDS), "SANDBOX_MODE": "logical"}
    first, second = launcher.ready(launcher.api(), launcher.api())
    sleeps = {"kind": "tool.call", "tool": "gsv__Sleep", "args": {"ms": 60_000}}
    name, witness = await create(first, {"go": sleeps}), await create(first, {"go": sleeps})
    async with board_on(second, name) as there, board_on(second, witness) as beside:
        async with board_on(first, name) as here, board_on(first, witness) as lost:
            presses = [await start_action(here, "go"), await start_action(lost, "go")]
            [record] = await there.records()
            first.kill()
            await asyncio.gather(*presses, return_exceptions=True)
        answer = await there.client.call("canvas.cancel", canvasId=name, eventId=record["eventId"])
        assert answer["status"] == "cancelled", "the owner is not needed for that"

        async def is_failed() -> bool:
            return (await beside.records())[0]["status"] == "failed"

        await wait_for(is_failed)
        assert REASON in (await beside.records())[0]["error"]["message"]
    (back,) = launcher.ready(launcher.again(first))
    async with board_on(back, name) as here:
        assert await action_events(here) == ["started", "failed"]
        [record] = await here.records()
        assert record["error"]["name"] == "CANCELLED"
