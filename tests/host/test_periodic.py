"""The supervised loop: its interval, its wake-up, and failures that do not end it."""

from __future__ import annotations

import asyncio

import pytest

from easel.errors import Unavailable
from easel.host.periodic import Periodic

FOREVER = 3600.0


async def test_work_is_repeated_after_the_interval() -> None:
    calls = 0
    repeated = asyncio.Event()

    async def work() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            repeated.set()

    loop = Periodic("test", 0.001, work)
    loop.start()
    async with asyncio.timeout(30):
        await repeated.wait()
    await loop.stop()


async def test_wake_calls_the_work_before_the_interval_ends() -> None:
    called = asyncio.Queue[None]()
    loop = Periodic("test", FOREVER, lambda: called.put(None))
    loop.start()
    async with asyncio.timeout(30):
        await called.get()
        loop.wake()
        await called.get()
    await loop.stop()


async def test_wake_during_the_work_is_not_lost() -> None:
    called = asyncio.Queue[None]()
    loop: Periodic
    is_first = True

    async def work() -> None:
        nonlocal is_first
        if is_first:
            is_first = False
            loop.wake()
        await called.put(None)

    loop = Periodic("test", FOREVER, work)
    loop.start()
    async with asyncio.timeout(30):
        await called.get()
        await called.get()
    await loop.stop()


@pytest.mark.parametrize("problem, reported", [(Unavailable(what="The database"), 0), (ValueError("bug"), 1)])
async def test_failure_does_not_end_the_loop_and_only_a_bug_is_reported(
    problem: Exception, reported: int
) -> None:
    errors: list[Exception] = []
    failures = 0
    repeated = asyncio.Event()

    async def work() -> None:
        nonlocal failures
        failures += 1
        if failures == 1:
            raise problem
        repeated.set()

    loop = Periodic("test", 0.001, work, on_error=errors.append)
    loop.start()
    async with asyncio.timeout(30):
        await repeated.wait()
    await loop.stop()
    assert len(errors) == reported


async def test_first_call_waits_for_the_delay() -> None:
    called = asyncio.Queue[None]()
    loop = Periodic("test", FOREVER, lambda: called.put(None), delay=FOREVER)
    loop.start()
    await asyncio.sleep(0)
    assert called.empty()
    loop.wake()
    async with asyncio.timeout(30):
        await called.get()
    await loop.stop()


async def test_cancelled_stop_raises() -> None:
    """A shutdown with a time limit does not go on after the limit."""
    started, cleaning_up = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        started.set()
        try:
            await asyncio.sleep(FOREVER)
        finally:
            cleaning_up.set()
            await asyncio.sleep(FOREVER)

    loop = Periodic("test", FOREVER, work)
    loop.start()
    async with asyncio.timeout(30):
        await started.wait()
        stopping = asyncio.create_task(loop.stop())
        await cleaning_up.wait()
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
