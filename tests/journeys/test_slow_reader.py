"""A slow reader costs the server little memory and other readers no time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from tests.journeys.client import Client
from tests.journeys.log_appender import LogAppender
from tests.journeys.soak import short_or_full
from tests.journeys.stored_runs import check_delivery
from tests.requirements import case, rule
from tests.support.sse import Event, Stream
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.journeys.stored_runs import StoredRuns
    from tests.support.processes import EaselProcess, Launcher

EVENTS = 10_000
TEXT = "x" * 400
SLOW_READERS = 4
BYTES_PER_SECOND = 1024
MAX_GROWTH_BYTES = 5 * 1024 * 1024  # for each slow reader
SAMPLE_SECONDS = 0.05
ROUNDS = short_or_full(2, 3)
MAX_DELAY = 1.5
# Of the best round of each kind: a busy machine makes a round slower, never faster.


@dataclass
class SlowReader:
    """Reads 1 kB a second through the smallest buffers that the kernel gives."""

    seen: list[Event] = field(default_factory=list[Event])

    async def read(self, client: Client, run_id: str) -> None:
        async with Stream.open(client.base_urls[0], run_id, client.token, receive_buffer=2048) as stream:
            while (items := await stream.read(BYTES_PER_SECOND // 4)) is not None:
                self.seen.extend(item for item in items if isinstance(item, Event))
                await asyncio.sleep(0.25)  # slowness is the fault of this drill


@contextlib.asynccontextmanager
async def peak_memory(process: EaselProcess) -> AsyncIterator[list[int]]:
    """Yield a list that gets the largest resident size during the block as its only item."""
    peak = [process.rss_bytes]

    async def watch() -> None:
        while True:
            peak[0] = max(peak[0], process.rss_bytes)
            await asyncio.sleep(SAMPLE_SECONDS)

    watching = asyncio.create_task(watch())
    try:
        yield peak
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def have_begun(slow: list[SlowReader]) -> bool:
    return all(one.seen for one in slow)


async def produce(client: Client, stored_runs: StoredRuns, slow: list[SlowReader]) -> tuple[str, float]:
    """Write 10,000 events with two fast readers and the given slow ones. Returns the run and the time of the
    fast readers.
    """
    async with LogAppender.claim(client, stored_runs.database_url) as appender:
        crawling = [asyncio.create_task(one.read(client, appender.run_id)) for one in slow]
        quick = [client.follower(appender.run_id) for _ in range(2)]
        began = time.monotonic()
        reading = [asyncio.create_task(one.read_to_end(within=120)) for one in quick]
        for _ in range(EVENTS // 100):
            await appender.say([TEXT] * 100)
        await appender.end()
        seen = await asyncio.gather(*reading)
        took = time.monotonic() - began
        await wait_for(lambda: have_begun(slow), within=60, what="the slow readers have read something")
        for one in crawling:
            one.cancel()
        await asyncio.gather(*crawling, return_exceptions=True)
    log = await stored_runs.log(appender.run_id)
    assert len(log) > EVENTS
    for events in seen:
        check_delivery(events, log)
    return appender.run_id, took


@case("E8")
@pytest.mark.soak
@pytest.mark.timeout(300)
@rule("RX-34", "RX-48")
async def test_slow_readers_cost_little_memory_and_no_time_of_others(
    launcher: Launcher, stored_runs: StoredRuns
) -> None:
    (api,) = launcher.ready(launcher.api())
    usual: list[float] = []
    disturbed: list[float] = []
    async with Client(api) as client:
        # The same work without slow readers first: memory that Python keeps after it is not caused by them.
        await produce(client, stored_runs, [])
        for _ in range(ROUNDS):
            async with peak_memory(api) as usual_peak:
                usual.append((await produce(client, stored_runs, []))[1])
            slow = [SlowReader() for _ in range(SLOW_READERS)]
            async with peak_memory(api) as peak:
                run_id, took = await produce(client, stored_runs, slow)
            disturbed.append(took)
            assert (peak[0] - usual_peak[0]) / SLOW_READERS < MAX_GROWTH_BYTES
            log = await stored_runs.log(run_id)
            for one in slow:
                assert 0 < len(one.seen) < EVENTS // 10, "it was not slow"
                rest = await client.follower(run_id, after=one.seen[-1].seq).read_to_end(within=60)
                check_delivery([*one.seen, *rest], log)
    # Neighbours in time are compared: other programs may take the processor from a whole round.
    assert min(beside / without for beside, without in zip(disturbed, usual, strict=True)) < MAX_DELAY, (
        f"quick readers need {disturbed} s beside slow ones, {usual} s without"
    )
