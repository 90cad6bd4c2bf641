"""Ordinary stops: a rolling restart closes streams politely and hands work over without waiting for any claim."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.journeys.client import Client, call, new_session, say, script, ticked, ticks, wait_ms
from tests.journeys.ledger import after_last_start, check_delivery, said_in, starts_in
from tests.requirements import case, rule
from tests.support.standstill import Stopwatch
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from tests.journeys.conftest import Cluster
    from tests.journeys.ledger import Ledger
    from tests.support.processes import Launcher

STREAMS = 100
CLOSED_WITHIN_SECONDS = 5.0
DRAIN_SECONDS = 1.0
# EASEL_DRAIN_SECONDS of the workers here; afterwards a run that is still inside a step is handed back.
HANDED_OVER_SECONDS = DRAIN_SECONDS + 4.0
LONG_MS = 6_000
# Of a step that is still under way when its worker has waited long enough.
FOREVER = ticks(20_000, 50)


@case("E12")
@rule("RX-48")
async def test_a_stopping_api_closes_its_streams_with_a_retry_and_loses_no_event(cluster: Cluster) -> None:
    async with cluster.client() as client:
        # They go on until they are cancelled, so that no stream ends by itself before the stop.
        run_ids = await asyncio.gather(*(client.start(script(FOREVER)) for _ in range(10)))
        followers = [
            client.follower(run_ids[number % 10], at=[0, 1]) for number in range(STREAMS)
        ]  # all begin at the first API
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
    assert cluster.apis[0].process.returncode == 0, cluster.apis[0].last_words()
    logs = await cluster.ledger.logs(run_ids)
    for events, follower in zip(seen, followers, strict=True):
        check_delivery(events, logs[follower.run_id])
        assert follower.polite_partings == 1, "it was cut off, or not told when to come back"
    await cluster.ledger.check(run_ids, ends="cancelled")
    for log in logs.values():
        assert said_in(log)
        assert ticked(FOREVER["ticks"]).startswith(said_in(after_last_start(log)))


@rule("RX-49")
async def test_a_stopping_worker_hands_its_runs_over_at_once(launcher: Launcher, ledger: Ledger) -> None:
    """The claim lasts longer than the test: whatever moves on was handed back and not waited for."""
    launcher.settings |= {"CLAIM_SECONDS": "300", "DRAIN_SECONDS": str(DRAIN_SECONDS)}
    (api,) = launcher.ready(launcher.api())
    second = launcher.worker()
    await wait_for(lambda: ledger.is_heard_by(2), within=60, what="the second worker is up")
    await wait_for(ledger.is_at_rest, within=30, what="it holds no lock")
    second.freeze()  # up, but not before its time
    async with Client(api) as client:
        quick = [
            await client.start(script(say("1"), call("gsv__Sleep", ms=300), say("2"))) for _ in range(10)
        ]
        in_a_tool = [
            await client.start(script(call("gsv__Sleep", ms=LONG_MS), say("slept"))) for _ in range(10)
        ]
        in_a_model = [await client.start(script(wait_ms(LONG_MS), say("thought"))) for _ in range(10)]
        everything = quick + in_a_tool + in_a_model
        first = (
            launcher.worker()
        )  # which finds them all: however long it took to ask, none of them is nearly over

        async def all_started() -> bool:
            return all(starts_in(log) for log in (await ledger.logs(everything)).values())

        await wait_for(all_started, within=60, what="the first worker has them all")
        second.thaw()
        watch = Stopwatch()
        await asyncio.to_thread(first.terminate, DRAIN_SECONDS + CLOSED_WITHIN_SECONDS)
        assert first.process.returncode == 0, first.last_words()

        async def all_taken_over() -> bool:
            return all(
                len(starts_in(log)) == 2 for log in (await ledger.logs(in_a_tool + in_a_model)).values()
            )

        await wait_for(
            all_taken_over,
            within=HANDED_OVER_SECONDS + CLOSED_WITHIN_SECONDS,
            what="the second worker has taken over",
        )
        assert watch.seconds < HANDED_OVER_SECONDS
        await ledger.wait_until_all_ended(everything, within=60)
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
        run_id = await client.start(
            script(wait_ms(8_000), say("at last"))
        )  # none of the five may find it ended
        for stops in range(5):
            worker = launcher.worker()
            await client.wait_for(run_id, {"running"}, within=60)
            await wait_for(
                lambda stops=stops: has_started(ledger, run_id, stops + 1), within=30, what="it has started"
            )
            await asyncio.to_thread(worker.terminate, CLOSED_WITHIN_SECONDS)
            assert (await client.run(run_id))["status"] == "queued"
        launcher.worker()
        await ledger.wait_until_all_ended([run_id], within=60)
    await ledger.check([run_id], says="at last")


async def has_started(ledger: Ledger, run_id: str, times: int) -> bool:
    return len(starts_in(await ledger.log(run_id))) >= times


@rule("RX-28", "RS-37")
async def test_a_run_cancelled_after_it_was_handed_back_closes_its_message(
    launcher: Launcher, ledger: Ledger
) -> None:
    """It has spoken already, so its narrative needs an end although nobody holds it."""
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
    await ledger.check([run_id], ends="cancelled")
