"""Actions of canvases when instances are killed, frozen, stopped and restarted: none keeps running, none runs
twice or is stored late.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.edges.gateway.action_fixtures import CanvasClient, expect_refusal
from tests.journeys.client import Client, new_session, say, script, wait_ms
from tests.journeys.conftest import CLAIM_SECONDS
from tests.requirements import case, rule
from tests.support.gateway import GatewayClient, Refused
from tests.support.processes import Launcher
from tests.support.standstill import Stopwatch
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.support.processes import EaselProcess

TOLD_WITHIN_SECONDS = 2 * CLAIM_SECONDS + 3.0
# A claim that is not renewed expires, the others check three times within that time, and the machine may be
# busy.
STOPPED_WITHIN_SECONDS = 8.0
LONG_MS, SHORT_MS = 60_000, 5_000
# Over when a frozen instance thaws, and not before it is frozen, also if the test is delayed.
REASON = "stopped in the middle"
FOREVER = {"CLAIM_SECONDS": "300"}  # an outcome within this time was not waited for


def sleeps(milliseconds: int, **more: Any) -> dict[str, Any]:
    return {
        "kind": "tool.call",
        "tool": "gsv__Sleep",
        "args": {"ms": milliseconds},
        "saveAs": "slept",
        **more,
    }


def echoes(**more: Any) -> dict[str, Any]:
    return {
        "kind": "tool.call",
        "tool": "gsv__Echo",
        "args": {"value": "{{state.n}}"},
        "saveAs": "said",
        "saveMode": "append",
        **more,
    }


@contextlib.asynccontextmanager
async def board_on(process: EaselProcess, name: str) -> AsyncIterator[CanvasClient]:
    async with GatewayClient.connected(process.base_url, process.token, new_session()) as client:
        yield CanvasClient(client, name)


async def create(process: EaselProcess, actions: dict[str, Any]) -> str:
    async with GatewayClient.connected(process.base_url, process.token, new_session()) as client:
        return (await CanvasClient.create(client, actions, state={"n": 7})).name


async def start_action(board: CanvasClient, action: str, **how: Any) -> asyncio.Task[Any]:
    """Start an action; returns when its start is in the log."""
    before = len(await board.records())
    press = asyncio.create_task(board.run(action, **how))

    async def is_running() -> bool:
        return len(await board.records()) > before

    await wait_for(is_running)
    return press


async def action_events(board: CanvasClient) -> list[str]:
    return [
        one.event.removeprefix("canvas.action.")
        for one in await board.log()
        if one.event.startswith("canvas.action.")
    ]


async def failed_record(board: CanvasClient, *, within: float) -> dict[str, Any]:
    """Return the record of the newest execution, which must have failed within the allowed time."""
    watch = Stopwatch()

    async def is_over() -> bool:
        return (await board.records())[0]["status"] != "running"

    await wait_for(is_over)
    assert watch.seconds < within
    record = (await board.records())[0]
    assert (record["status"], REASON in record["error"]["message"]) == ("failed", True), record
    return record


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Launcher]:
    """Start a single process on SQLite."""
    with Launcher(tmp_path, "", {"CLAIM_SECONDS": str(CLAIM_SECONDS)}) as launcher:
        yield launcher


# --- two instances on Postgres
# --------------------------------------------------------------------------------


@rule("CV-42", "CV-48", "CV-37")
@case("D1")
async def test_action_of_a_killed_instance_is_failed_by_the_other_within_a_claim(
    launcher: Launcher,
) -> None:
    first, second = launcher.ready(launcher.api(), launcher.api())
    name = await create(first, {"go": sleeps(LONG_MS)})
    async with board_on(second, name) as there:
        await there.listen()
        async with board_on(first, name) as here:
            press = await start_action(here, "go")
            assert (await there.client.event()).event == "canvas.action.started"
            first.kill()
            with pytest.raises(EOFError):
                await press
        record = await failed_record(there, within=TOLD_WITHIN_SECONDS)
        event = await there.client.event()
        assert (event.event, event.payload["eventId"]) == ("canvas.action.failed", record["eventId"])
        assert REASON in event.payload["error"]["message"]
        assert event.payload["provenance"] == {
            "kind": "person",
            "agent_id": "owner",
            "node_id": "go",
            "run_id": record["eventId"],
        }
        assert "slept" not in await there.state()
        assert await there.revision() == 1
    (back,) = launcher.ready(launcher.again(first))
    async with board_on(back, name) as here:
        assert await action_events(here) == ["started", "failed"], "once, also now that it is back"


@rule("CV-23", "CV-42")
@case("J2")
async def test_result_of_an_instance_that_was_frozen_too_long_is_not_stored(launcher: Launcher) -> None:
    first, second = launcher.ready(launcher.api(), launcher.api())
    name = await create(first, {"go": sleeps(SHORT_MS)})
    async with board_on(first, name) as here, board_on(second, name) as there:
        press = await start_action(here, "go")
        over_at = time.monotonic() + SHORT_MS / 1000
        first.freeze()
        await failed_record(there, within=TOLD_WITHIN_SECONDS)
        # so that it ends immediately after the thaw
        await asyncio.sleep(max(0.0, over_at - time.monotonic()))
        first.thaw()
        problem = await expect_refusal(press)
        assert problem.code == 500
        assert await action_events(there) == ["started", "failed"]
        assert (await there.state(), await there.revision()) == ({"n": 7}, 1)


@rule("CV-42", "CV-48")
@case("E12")
async def test_stopping_instance_records_its_own_actions_as_interrupted(
    launcher: Launcher,
) -> None:
    launcher.settings |= FOREVER
    first, second = launcher.ready(launcher.api(), launcher.api())
    name = await create(first, {"go": sleeps(LONG_MS)})
    async with board_on(second, name) as there:
        async with board_on(first, name) as here:
            press = await start_action(here, "go")
            await asyncio.to_thread(first.terminate, STOPPED_WITHIN_SECONDS)
            with pytest.raises((EOFError, Refused)):
                await press
        assert first.process.returncode == 0, first.last_output()
        await failed_record(there, within=STOPPED_WITHIN_SECONDS)
        assert await action_events(there) == ["started", "failed"]


@rule("CV-22", "CV-07")
@case("X6")
async def test_confirmation_outlives_its_instance_and_is_answered_once_on_any_instance(
    launcher: Launcher,
) -> None:
    first, second = launcher.ready(launcher.api(), launcher.api())
    name = await create(first, {"go": echoes(confirm="always")})
    async with board_on(first, name) as here:
        asked = await here.run("go", requestId="r")
        await here.patch("/n", 8)
    first.kill()
    (back,) = launcher.ready(launcher.again(first))
    async with board_on(back, name) as here, board_on(second, name) as there:
        [waiting] = await there.confirmations()
        assert (waiting["confirmationId"], waiting["resolved"]["args"]) == (
            asked["confirmationId"],
            {"value": "7"},
        )
        assert await there.run("go", requestId="r") == asked, "nothing is asked twice"
        answers = await asyncio.gather(
            *((here, there)[n % 2].confirm(asked) for n in range(20)), return_exceptions=True
        )
        assert sorted(one.code for one in answers if isinstance(one, Refused)) == [409] * 19
        assert [one["result"] for one in (await there.state())["said"]] == ["7"], (
            "once, and exactly what was shown"
        )
        assert await action_events(here) == ["asked", "started", "finished"]


@rule("CV-36", "CV-44")
async def test_one_request_is_one_execution_on_all_instances_and_after_a_kill(
    launcher: Launcher,
) -> None:
    first, second = launcher.ready(launcher.api(), launcher.api())
    name = await create(first, {"go": echoes(), "slow": sleeps(300), "long": sleeps(LONG_MS)})
    async with board_on(first, name) as here, board_on(second, name) as there:
        answers = await asyncio.gather(*((here, there)[n % 2].run("go", requestId="r1") for n in range(20)))
        assert all(answer == answers[0] for answer in answers)
        slow = await asyncio.gather(*((here, there)[n % 2].run("slow", requestId="r2") for n in range(10)))
        assert all(answer == slow[0] for answer in slow), "the other instance waits for the owner"
        assert [len((await here.state())["said"]), len(await here.records())] == [1, 2]
        await start_action(here, "long", requestId="r3")
        waiting = asyncio.create_task(there.run("long", requestId="r3"))
        first.kill()
        lost = await expect_refusal(waiting)
        assert REASON in lost.error["message"], "and does not wait for ever"
    second.kill()
    for back in launcher.ready(launcher.again(first), launcher.again(second)):
        async with board_on(back, name) as board:
            assert await board.run("go", requestId="r1") == answers[0]
            assert await board.run("slow", requestId="r2") == slow[0]
            again = await expect_refusal(board.run("long", requestId="r3"))
            assert (again.code, again.details["eventId"]) == (lost.code, lost.details["eventId"])
            assert len((await board.state())["said"]) == 1


@rule("CV-44", "CV-45")
@case("C11")
async def test_actions_on_two_instances_lose_nothing(launcher: Launcher) -> None:
    first, second = launcher.ready(launcher.api(), launcher.api())
    name = await create(first, {"go": echoes()})
    async with board_on(first, name) as here, board_on(second, name) as there:
        for _ in range(4):
            await asyncio.gather(*((here, there)[n % 2].run("go") for n in range(32)))
        whole = await here.snapshot()
        assert (len(whole["state"]["said"]), whole["revision"]) == (128, 129)
        ends = await asyncio.gather(
            *((here, there)[n % 2].run("go", expectedRevision=129) for n in range(20)),
            return_exceptions=True,
        )
        # All may start before the first one ends; later ones are refused, and no accepted change is lost.
        accepted = [end for end in ends if isinstance(end, dict)]
        assert all(end.code == 409 for end in ends if isinstance(end, Refused))
        assert len((await there.state())["said"]) == 128 + len(accepted)


@rule("CV-43", "CV-42")
@case("D1")
async def test_sent_message_outlives_its_worker_and_the_instance_that_waits_for_its_answer(
    launcher: Launcher,
) -> None:
    first, second = launcher.ready(launcher.api(), launcher.api())
    workers = [launcher.worker(), launcher.worker()]
    session = new_session()
    send = {
        "kind": "session.send",
        "sessionKey": f"agent:main:{session}",
        "saveAs": "answer",
        "saveMode": "append",
    }
    slow = script(wait_ms(5_000), say("at last"))
    name = await create(first, {"go": {**send, "message": slow}})
    async with board_on(second, name) as there:
        async with board_on(first, name) as here:
            press = await start_action(here, "go")
            for worker in workers:
                worker.kill()
            workers = [launcher.again(worker) for worker in workers]
            assert (await press)["result"] == "at last", "another worker took it up"
            lonely = await start_action(here, "go", requestId="r")
            await wait_for(lambda: has_runs(second, session, 2))
            first.kill()
            with pytest.raises(EOFError):
                await lonely
        assert (await there.run("go", requestId="r"))["result"] == "at last", (
            "who asks again is answered, and sends nothing twice"
        )
        assert [one["result"] for one in (await there.state())["answer"]] == ["at last"] * 2
        assert await action_events(there) == ["started", "finished"] * 2
        assert await has_runs(second, session, 2)
    (back,) = launcher.ready(launcher.again(first))
    async with board_on(back, name) as here:
        assert await action_events(here) == ["started", "finished"] * 2, "once, also now that it is back"


async def has_runs(process: EaselProcess, session: str, many: int) -> bool:
    async with Client(process) as client:
        return len((await client.get(f"/api/runs?session_id={session}")).json()["runs"]) == many


# --- one process on SQLite
# ------------------------------------------------------------------------------------


@rule("CV-42", "CV-48", "CV-02")
async def test_on_sqlite_an_action_interrupted_by_a_kill_is_failed_at_the_next_start(alone: Launcher) -> None:
    alone.settings |= FOREVER
    (process,) = alone.ready(alone.up())
    name = await create(process, {"go": sleeps(LONG_MS), "ask": echoes(confirm="always"), "done": echoes()})
    async with board_on(process, name) as board:
        answer = await board.run("done", requestId="r1")
        asked = await board.run("ask")
        press = await start_action(board, "go", requestId="r2")
        before = await board.snapshot()
        process.kill()
        with pytest.raises(EOFError):
            await press
    (back,) = alone.ready(alone.again(process))
    async with board_on(back, name) as board:
        await failed_record(board, within=TOLD_WITHIN_SECONDS)
        assert await action_events(board) == ["started", "finished", "asked", "started", "failed"]
        after = await board.snapshot()
        assert (after["state"], after["spec"], after["revision"]) == (
            before["state"],
            before["spec"],
            before["revision"],
        )
        assert await board.run("done", requestId="r1") == answer
        assert REASON in (await expect_refusal(board.run("go", requestId="r2"))).error["message"]
        assert (await board.confirm(asked))["result"] == "7"
        assert (await expect_refusal(board.confirm(asked))).code == 409
        assert json.dumps((await board.state())["said"]).count('"result"') == 2


@rule("CV-43", "CV-42")
@pytest.mark.parametrize("end", ["kill", "terminate"])
async def test_on_sqlite_the_answer_of_a_run_reaches_its_action_over_a_restart(
    alone: Launcher, end: str
) -> None:
    (process,) = alone.ready(alone.up())
    session = new_session()
    send = {
        "kind": "session.send",
        "sessionKey": f"agent:main:{session}",
        "message": script(wait_ms(5_000), say("at last")),
    }
    name = await create(process, {"go": {**send, "saveAs": "answer", "saveMode": "append"}})
    async with board_on(process, name) as board:
        press = await start_action(board, "go", requestId="r")
        await wait_for(lambda: has_runs(process, session, 1))
        if end == "kill":
            process.kill()
        else:
            await asyncio.to_thread(process.terminate, STOPPED_WITHIN_SECONDS)
        with pytest.raises((EOFError, Refused)):
            await press
    (back,) = alone.ready(alone.again(process))
    async with board_on(back, name) as board:
        assert (await board.run("go", requestId="r"))["result"] == "at last"
        assert [one["result"] for one in (await board.state())["answer"]] == ["at last"]
        assert await action_events(board) == ["started", "finished"]
    assert await has_runs(back, session, 1)


@rule("CV-42")
async def test_on_sqlite_a_stop_records_interrupted_actions(alone: Launcher) -> None:
    alone.settings |= FOREVER
    (process,) = alone.ready(alone.up())
    name = await create(process, {"go": sleeps(LONG_MS)})
    async with board_on(process, name) as board:
        press = await start_action(board, "go")
        await asyncio.to_thread(process.terminate, STOPPED_WITHIN_SECONDS)
        with pytest.raises((EOFError, Refused)):
            await press
    assert process.process.returncode == 0, process.last_output()
    (back,) = alone.ready(alone.again(process))
    async with board_on(back, name) as board:
        record = await failed_record(board, within=TOLD_WITHIN_SECONDS)
        assert await action_events(board) == ["started", "failed"]
        assert record["endedAt"] - record["startedAt"] < LONG_MS
