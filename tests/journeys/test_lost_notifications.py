"""Notifications only save waiting: with their connections killed repeatedly, every event still arrives within
a poll.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tests.journeys.client import Client, check_each, script, ticked, ticks
from tests.journeys.stored_runs import LISTENERS, check_delivery
from tests.requirements import case, rule
from tests.support.standstill import Stopwatch
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from tests.journeys.conftest import Cluster
    from tests.journeys.stored_runs import StoredRuns
    from tests.support.processes import Launcher

POLL_SECONDS = 1.0
# EASEL_POLL_SECONDS by default; a late event may wait for one poll and the read after it.
SLACK_SECONDS = 0.7
STORM_SECONDS = 6.0
SHORT_RUNS = 3

# On connections opened from now on, notifying does nothing.
SILENCED = (
    "create function public.pg_notify(text, text) returns void language sql as ''",
    "do $$ begin execute format('alter database %I set search_path = public, pg_catalog', "
    "current_database()); end $$",
)


async def kill_listeners(stored_runs: StoredRuns) -> int:
    """Terminate the backends that listen or notify. Returns how many."""
    return await stored_runs.value(f"select count(pg_terminate_backend(pid)) {LISTENERS}")


@case("E6")
@rule("RX-11")
async def test_polling_delivers_events_while_every_listener_is_killed_each_second(
    cluster: Cluster,
) -> None:
    killed = 0

    async def storm() -> None:
        nonlocal killed
        while True:
            killed += await kill_listeners(cluster.stored_runs)
            await asyncio.sleep(1.0)  # the interval is part of the case: each second

    count = int(STORM_SECONDS / 0.1)
    machine = Stopwatch()
    async with cluster.client() as client:
        weather = asyncio.create_task(storm())
        try:
            late: list[float] = []
            run_ids = [await client.start(script(ticks(count, 100)), at=index) for index in (0, 1)]

            async def watch(run_id: str, index: int) -> None:
                follower = client.follower(run_id, at=[index])
                while not follower.is_done:
                    event = await follower.read_until(lambda _: True, within=30)
                    late.append((datetime.now(UTC) - datetime.fromisoformat(event.ts)).total_seconds())
                check_delivery(follower.events, await cluster.stored_runs.log(run_id))

            await asyncio.gather(*(watch(run_id, index) for run_id in run_ids for index in (0, 1)))
            # Short runs too: a claim waits for a notification or a poll as well.
            waits: list[float] = []
            for _ in range(SHORT_RUNS):
                short = Stopwatch()
                await client.wait_for(await client.start("noop"), within=20)
                waits.append(short.seconds)
        finally:
            weather.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await weather
    await cluster.stored_runs.check(run_ids, says=ticked(count))
    assert killed >= STORM_SECONDS, "the listeners were not found, so nothing was proven"
    print(
        f"events were {max(late):.2f} s late at most, short runs took {waits}, the machine stood still for "
        f"{machine.stood_still:.2f} s"
    )
    assert max(late) < POLL_SECONDS + SLACK_SECONDS + machine.stood_still
    check_each(waits, 2 * (POLL_SECONDS + SLACK_SECONDS), "claimed and notified")


@case("E6")
@rule("RX-11")
async def test_poll_finds_everything_without_notifications(
    launcher: Launcher, stored_runs: StoredRuns
) -> None:
    """Killed listeners reconnect before the next event, whose notification delivers what they missed; here
    none is ever sent.
    """
    for sql in SILENCED:
        await stored_runs.fetch(sql)
    apis = launcher.ready(launcher.api(), launcher.api())
    launcher.worker()
    async with Client(*apis) as client:
        run_id = await client.start(script(ticks(30, 100)))
        watch = Stopwatch()
        follower = client.follower(run_id, at=[1])
        late: list[float] = []
        while not follower.is_done:
            event = await follower.read_until(lambda _: True, within=30)
            late.append((datetime.now(UTC) - datetime.fromisoformat(event.ts)).total_seconds())
        check_delivery(follower.events, await stored_runs.log(run_id))
        await stored_runs.check([run_id], says=ticked(30))
        assert max(late) < POLL_SECONDS + SLACK_SECONDS + watch.stood_still
        assert statistics.median(late) > 0.1, "something rang"


@case("E6")
@rule("RX-11")
async def test_killed_listener_reconnects(cluster: Cluster) -> None:
    await kill_listeners(cluster.stored_runs)

    async with cluster.client() as client:
        await client.wait_for(await client.start("noop"), within=20)  # an event to notify about
        await wait_for(
            lambda: cluster.stored_runs.has_listeners(4), within=30, what="every process listens again"
        )
