"""Ordinary stops: a rolling restart closes streams politely and hands work over without waiting for any claim."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from tests.journeys.client import Client, call, eventually, new_session, say, script, ticked, ticks, wait_ms
from tests.journeys.ledger import check_delivery, starts_in
from tests.requirements import case, rule

if TYPE_CHECKING:
    from tests.journeys.conftest import Cluster
    from tests.journeys.ledger import Ledger
    from tests.support.processes import Launcher

STREAMS = 100
CLOSED_WITHIN_SECONDS = 5.0
DRAIN_SECONDS = 1.0
# EASEL_DRAIN_SECONDS of the workers here; afterwards a run that is still inside a step is handed back.
HANDED_OVER_SECONDS = DRAIN_SECONDS + 2.0


@case("E12")
@rule("RX-48")
async def test_a_stopping_api_closes_its_streams_with_a_retry_and_loses_no_event(cluster: Cluster) -> None:
    async with cluster.client() as client:
        run_ids = await asyncio.gather(*(client.start(script(ticks(150, 50))) for _ in range(10)))
        followers = [client.follower(run_ids[number % 10]) for number in range(STREAMS)]  # all begin at the first API
        await asyncio.gather(*(one.read_until(lambda event: event.type == "message.delta", within=20) for one in followers))
        reading = [asyncio.create_task(one.read_to_end(within=40)) for one in followers]
        took = await asyncio.to_thread(cluster.apis[0].terminate, CLOSED_WITHIN_SECONDS)
        seen = await asyncio.gather(*reading)
    assert took <= CLOSED_WITHIN_SECONDS
    assert cluster.apis[0].process.returncode == 0, cluster.apis[0].last_words()
    logs = await cluster.ledger.logs(run_ids)
    for events, follower in zip(seen, followers, strict=True):
        check_delivery(events, logs[follower.run_id])
        assert follower.connected >= 2
        assert follower.polite_partings == 1, "it was cut off, or not told when to come back"
    await cluster.ledger.check(run_ids, says=ticked(150))


@rule("RX-49")
async def test_a_stopping_worker_hands_its_runs_over_at_once(launcher: Launcher, ledger: Ledger) -> None:
    """The claim lasts longer than the test: whatever moves on was handed back and not waited for."""
    launcher.settings |= {"CLAIM_SECONDS": "300", "DRAIN_SECONDS": str(DRAIN_SECONDS)}
    (api,) = launcher.ready(launcher.api())
    second = launcher.worker()
    await eventually(lambda: ledger.is_heard_by(2), within=20, what="the second worker is up")
    second.freeze()  # up, but not before its time
    first = launcher.worker()
    async with Client(api) as client:
        quick = [await client.start(script(say("1"), call("gsv__Sleep", ms=300), say("2"))) for _ in range(10)]
        in_a_tool = [await client.start(script(call("gsv__Sleep", ms=4000), say("slept"))) for _ in range(10)]
        in_a_model = [await client.start(script(wait_ms(4000), say("thought"))) for _ in range(10)]
        everything = quick + in_a_tool + in_a_model

        async def all_started() -> bool:
            return all(starts_in(log) for log in (await ledger.logs(everything)).values())

        await eventually(all_started, within=20, what="the first worker has them all")
        second.thaw()
        stopped = time.monotonic()
        await asyncio.to_thread(first.terminate, DRAIN_SECONDS + CLOSED_WITHIN_SECONDS)
        assert first.process.returncode == 0, first.last_words()

        async def all_taken_over() -> bool:
            return all(len(starts_in(log)) == 2 for log in (await ledger.logs(in_a_tool + in_a_model)).values())

        await eventually(all_taken_over, within=HANDED_OVER_SECONDS + CLOSED_WITHIN_SECONDS, what="the second worker has taken over")
        assert time.monotonic() - stopped < HANDED_OVER_SECONDS
        await ledger.wait_until_all_ended(everything, within=30)
        assert second.is_alive
    await ledger.check(quick, says="1\n\n2")
    await ledger.check(in_a_tool, says="slept")
    await ledger.check(in_a_model, says="thought")


@rule("RX-49", "RS-38")
async def test_ordinary_stops_use_up_no_attempt(launcher: Launcher, ledger: Ledger) -> None:
    """Five rolling restarts hit the same run, which may only be lost three times."""
    launcher.settings |= {"CLAIM_SECONDS": "300", "DRAIN_SECONDS": "0"}
    (api,) = launcher.ready(launcher.api())
    async with Client(api) as client:
        run_id = await client.start(script(wait_ms(4000), say("at last")))  # none of the five may find it ended
        for stops in range(5):
            worker = launcher.worker()
            await client.wait_for(run_id, {"running"}, within=20)
            await eventually(lambda stops=stops: has_started(ledger, run_id, stops + 1), within=10, what="it has started")
            await asyncio.to_thread(worker.terminate, CLOSED_WITHIN_SECONDS)
            assert (await client.run(run_id))["status"] == "queued"
        launcher.worker()
        await ledger.wait_until_all_ended([run_id], within=20)
    await ledger.check([run_id], says="at last")


async def has_started(ledger: Ledger, run_id: str, times: int) -> bool:
    return len(starts_in(await ledger.log(run_id))) >= times


@rule("RX-28", "RS-37")
async def test_a_run_cancelled_after_it_was_handed_back_closes_its_message(launcher: Launcher, ledger: Ledger) -> None:
    """It has spoken already, so its narrative needs an end although nobody holds it."""
    launcher.settings |= {"CLAIM_SECONDS": "300", "DRAIN_SECONDS": "0"}
    (api,) = launcher.ready(launcher.api())
    worker = launcher.worker()
    async with Client(api) as client:
        run_id = await client.start(script(ticks(1000, 20)), session_id=new_session())
        follower = client.follower(run_id)
        await follower.read_until(lambda event: event.type == "message.delta", within=20)
        await asyncio.to_thread(worker.terminate, CLOSED_WITHIN_SECONDS)
        assert (await client.cancel(run_id)).status_code == 202
        await follower.read_to_end(within=10)
    await ledger.check([run_id], ends="cancelled")
