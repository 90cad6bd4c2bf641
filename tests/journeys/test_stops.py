"""Ordinary stops: a rolling restart closes streams in order and releases runs without waiting for a claim to
expire.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.journeys.client import Client, call, new_session, say, script, ticked, ticks, wait_ms
from tests.journeys.stored_runs import after_last_start, check_delivery, said_in, starts_in
from tests.requirements import case, rule
from tests.support.standstill import Stopwatch
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from tests.journeys.conftest import Cluster
    from tests.journeys.stored_runs import StoredRuns
    from tests.support.processes import Launcher

STREAMS = 100
CLOSED_WITHIN_SECONDS = 5.0
DRAIN_SECONDS = 1.0
# EASEL_DRAIN_SECONDS of the workers here; afterwards a run that is still inside a step is released.
HANDED_OVER_SECONDS = DRAIN_SECONDS + 4.0
LONG_MS = 6_000
# The length of a step that is still in progress when the drain time is over.
FOREVER = ticks(20_000, 50)


@case("E12")
@rule("RX-48")
async def test_stopping_api_closes_its_streams_with_a_retry_and_loses_no_event(cluster: Cluster) -> None:
    async with cluster.client() as client:
        # They run until they are cancelled, so that no stream ends before the stop.
        run_ids = await asyncio.gather(*(client.start(script(FOREVER)) for _ in range(10)))
        followers = [
            client.follower(run_ids[number % 10], at=[0, 1]) for number in range(STREAMS)
        ]  # all start at the first API
        await asyncio.gather(
            *(one.read_until(lambda event: event.type == "message.delta", within=60) for one in followers)
        )
        reading = [asyncio.create_task(one.read_to_end(within=90)) for one in followers]
        await asyncio.to_thread(cluster.apis[0].terminate, CLOSED_WITHIN_SECONDS)

        async def all_are_back() -> bool:
            return all(one.connected >= 2 for one in followers)

        await wait_for(all_are_back, within=60, what="every reader is at the second API")
        for answer in await asyncio.gather(*(client.cancel(run_id, at=1) for run_id in run_ids)):
            assert answer.status_code == 202, answer.text
        seen = await asyncio.gather(*reading)
    assert cluster.apis[0].process.returncode == 0, cluster.apis[0].last_output()
    logs = await cluster.stored_runs.logs(run_ids)
    for events, follower in zip(seen, followers, strict=True):
        check_delivery(events, logs[follower.run_id])
        assert follower.polite_partings == 1, "it was cut off, or got no retry time"
    await cluster.stored_runs.check(run_ids, ends="cancelled")
    for log in logs.values():
        assert said_in(log)
        assert ticked(FOREVER["ticks"]).startswith(said_in(after_last_start(log)))


@rule("RX-49")
async def test_stopping_worker_releases_its_runs_at_once(launcher: Launcher, stored_runs: StoredRuns) -> None:
    """The claim lasts longer than the test: a run that moves on was released."""
    launcher.settings |= {"CLAIM_SECONDS": "300", "DRAIN_SECONDS": str(DRAIN_SECONDS)}
    (api,) = launcher.ready(launcher.api())
    second = launcher.worker()
    await wait_for(lambda: stored_runs.has_listeners(2), within=60, what="the second worker is up")
    await wait_for(stored_runs.is_at_rest, within=30, what="it holds no lock")
    second.freeze()  # started, but not yet ready for work
    async with Client(api) as client:
        quick = [
            await client.start(script(say("1"), call("gsv__Sleep", ms=300), say("2"))) for _ in range(10)
        ]
        in_a_tool = [
            await client.start(script(call("gsv__Sleep", ms=LONG_MS), say("slept"))) for _ in range(10)
        ]
        in_a_model = [await client.start(script(wait_ms(LONG_MS), say("thought"))) for _ in range(10)]
        everything = quick + in_a_tool + in_a_model
        first = launcher.worker()  # it finds them all: none of them is nearly finished

        async def all_started() -> bool:
            return all(starts_in(log) for log in (await stored_runs.logs(everything)).values())

        await wait_for(all_started, within=60, what="the first worker has them all")
        second.thaw()
        watch = Stopwatch()
        await asyncio.to_thread(first.terminate, DRAIN_SECONDS + CLOSED_WITHIN_SECONDS)
        assert first.process.returncode == 0, first.last_output()

        async def all_taken_over() -> bool:
            return all(
                len(starts_in(log)) == 2 for log in (await stored_runs.logs(in_a_tool + in_a_model)).values()
            )

        await wait_for(
            all_taken_over,
            within=HANDED_OVER_SECONDS + CLOSED_WITHIN_SECONDS,
            what="the second worker has taken over",
        )
        assert watch.seconds < HANDED_OVER_SECONDS
        await stored_runs.wait_until_all_ended(everything, within=60)
        assert second.is_alive
    await stored_runs.check(quick, says="1\n\n2")
    await stored_runs.check(in_a_tool, says="slept")
    await stored_runs.check(in_a_model, says="thought")


@rule("RX-49", "RS-38")
async def test_ordinary_stops_use_up_no_attempt(launcher: Launcher, stored_runs: StoredRuns) -> None:
    """More rolling restarts hit the same run than it may lose attempts (three)."""
    launcher.settings |= {"CLAIM_SECONDS": "300", "DRAIN_SECONDS": "0"}
    (api,) = launcher.ready(launcher.api())
    async with Client(api) as client:
        run_id = await client.start(script(wait_ms(8_000), say("at last")))  # no restart may find it ended
        for stops in range(4):
            worker = launcher.worker()
            await client.wait_for(run_id, {"running"}, within=60)
            await wait_for(
                lambda stops=stops: has_started(stored_runs, run_id, stops + 1),
                within=30,
                what="it has started",
            )
            await asyncio.to_thread(worker.terminate, CLOSED_WITHIN_SECONDS)
            assert (await client.run(run_id))["status"] == "queued"
        launcher.worker()
        await stored_runs.wait_until_all_ended([run_id], within=60)
    await stored_runs.check([run_id], says="at last")


async def has_started(stored_runs: StoredRuns, run_id: str, times: int) -> bool:
    return len(starts_in(await stored_runs.log(run_id))) >= times


@rule("RX-28", "RS-37")
async def test_run_cancelled_after_its_release_closes_its_message(
    launcher: Launcher, stored_runs: StoredRuns
) -> None:
    """It has text already, so its narrative needs an end although no worker owns it."""
    launcher.settings |= {"CLAIM_SECONDS": "300", "DRAIN_SECONDS": "0"}
    (api,) = launcher.ready(launcher.api())
    worker = launcher.worker()
    async with Client(api) as client:
        run_id = await client.start(script(FOREVER), session_id=new_session())
        follower = client.follower(run_id)
        await follower.read_until(lambda event: event.type == "message.delta", within=60)
        await asyncio.to_thread(worker.terminate, CLOSED_WITHIN_SECONDS)
        assert (await client.cancel(run_id)).status_code == 202
        await follower.read_to_end(within=30)
    await stored_runs.check([run_id], ends="cancelled")
