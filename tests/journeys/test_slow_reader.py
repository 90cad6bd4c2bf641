"""A reader that cannot keep up costs the server next to nothing, and nobody else anything."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from tests.journeys.client import Client
from tests.journeys.ledger import check_delivery
from tests.journeys.pen import Pen
from tests.requirements import case, rule
from tests.support.sse import Event, Stream
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.journeys.ledger import Ledger
    from tests.support.processes import EaselProcess, Launcher

EVENTS = 10_000
TEXT = "x" * 400
SLOW_READERS = 4
BYTES_PER_SECOND = 1024
MAX_GROWTH_BYTES = 5 * 1024 * 1024  # for each slow reader
SAMPLE_SECONDS = 0.05
ROUNDS = 3
MAX_DELAY = 1.5
# Of the best round of each kind: a busy machine makes any round slower, and none quicker.


@dataclass
class SlowReader:
    """1 kB a second through the smallest buffers the kernel gives."""

    seen: list[Event] = field(default_factory=list[Event])

    async def read(self, client: Client, run_id: str) -> None:
        async with Stream.open(client.base_urls[0], run_id, client.token, receive_buffer=2048) as stream:
            while (items := await stream.read(BYTES_PER_SECOND // 4)) is not None:
                self.seen.extend(item for item in items if isinstance(item, Event))
                await asyncio.sleep(0.25)  # slowness is the fault that this drill makes


@contextlib.asynccontextmanager
async def peak_memory(process: EaselProcess) -> AsyncIterator[list[int]]:
    """The largest resident size while the body ran, as the only item."""
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


async def produce(client: Client, ledger: Ledger, slow: list[SlowReader]) -> tuple[str, float]:
    """10,000 events with two quick readers and the given slow ones: the run, and how long the quick ones needed."""
    async with Pen.claim(client, ledger.database_url) as pen:
        crawling = [asyncio.create_task(one.read(client, pen.run_id)) for one in slow]
        quick = [client.follower(pen.run_id) for _ in range(2)]
        began = time.monotonic()
        reading = [asyncio.create_task(one.read_to_end(within=120)) for one in quick]
        for _ in range(EVENTS // 100):
            await pen.say([TEXT] * 100)
        await pen.end()
        seen = await asyncio.gather(*reading)
        took = time.monotonic() - began
        await wait_for(lambda: have_begun(slow), within=60, what="the slow readers have read something")
        for one in crawling:
            one.cancel()
        await asyncio.gather(*crawling, return_exceptions=True)
    log = await ledger.log(pen.run_id)
    assert len(log) > EVENTS
    for events in seen:
        check_delivery(events, log)
    return pen.run_id, took


@case("E8")
@pytest.mark.timeout(300)
@rule("RX-34", "RX-48")
async def test_slow_readers_cost_little_memory_and_nobody_elses_time(
    launcher: Launcher, ledger: Ledger
) -> None:
    (api,) = launcher.ready(launcher.api())
    usual: list[float] = []
    disturbed: list[float] = []
    async with Client(api) as client:
        # The same work without slow readers first: what Python keeps after it is not the slow readers' doing.
        await produce(client, ledger, [])
        for _ in range(ROUNDS):
            async with peak_memory(api) as usual_peak:
                usual.append((await produce(client, ledger, []))[1])
            slow = [SlowReader() for _ in range(SLOW_READERS)]
            async with peak_memory(api) as peak:
                run_id, took = await produce(client, ledger, slow)
            disturbed.append(took)
            assert (peak[0] - usual_peak[0]) / SLOW_READERS < MAX_GROWTH_BYTES
            log = await ledger.log(run_id)
            for one in slow:
                assert 0 < len(one.seen) < EVENTS // 10, "it was not slow"
                rest = await client.follower(run_id, after=one.seen[-1].seq).read_to_end(within=60)
                check_delivery([*one.seen, *rest], log)
    assert min(disturbed) < MAX_DELAY * min(usual), (
        f"quick readers need {disturbed} s beside slow ones, {usual} s without"
    )
