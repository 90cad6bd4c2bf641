"""A session's next run goes to the worker that it had last, and to another as soon as that one does not take it. SB-12, RX-51

The poll is set so far away that nothing here is found by it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import TYPE_CHECKING, Any

from easel.core.principal import THE_OWNER
from easel.core.run.status import Status
from easel.core.stream.notifications import RunReady
from easel.host.runs.preferred_worker import SHARED_LOOK_SECONDS, PreferredWorkerDelay
from easel.host.runs.worker import NEAR_TURNS
from easel.ids import WorkerId
from tests.host.runs.workers import at_work, ended, script
from tests.requirements import rule
from tests.stores.harness import LONG, a_run, ends
from tests.support.waiting import TIMEOUT_SECONDS, wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from easel.core.run.run import Claim
    from easel.host.runs.worker import RunWorker
    from easel.ids import RunId
    from tests.host.conftest import Bench

DEAD = WorkerId("wrk_dead")
FOR_LONG = 60.0  # whoever is preferred has all the time that it could want
A_MOMENT = 0.5
NEVER = 3600.0  # seconds between two polls


class CountedRuns:
    """The store itself; only notes how often it was asked for runs."""

    def __init__(self, bench: Bench) -> None:
        self._runs = bench.runs
        self.looks = 0
        self.looking = 0

    async def claim_queued(self, *given: Any, **named: Any) -> list[Claim]:
        self.looks += 1
        self.looking += 1
        try:
            return await self._runs.claim_queued(*given, **named)
        finally:
            self.looking -= 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runs, name)


def a_worker(bench: Bench, *, prefer: float, **more: Any) -> RunWorker:
    return bench.worker(poll_seconds=NEVER, prefer_seconds=prefer, **more)


@contextlib.asynccontextmanager
async def settled(bench: Bench, **options: Any) -> AsyncGenerator[RunWorker]:
    """A worker at work that has had the looks of its beginning: at once, and when a moment was over."""
    counted = CountedRuns(bench)

    async def has_settled() -> bool:
        return counted.looks == 2

    worker = a_worker(bench, prefer=A_MOMENT, runs=counted, **options)
    async with at_work(worker):
        await wait_for(has_settled)
        yield worker


async def had(bench: Bench, session: str, worker_id: WorkerId) -> None:
    """The session has had a run, and this worker ended it."""
    await bench.start("noop", session)
    [claim] = await bench.runs.claim_queued(worker_id, 1, LONG, 0)
    assert await bench.runs.append(ends(claim, 1)) is not None


async def worker_of(bench: Bench, run_id: RunId) -> str:
    def owner(connection: Any) -> str:
        return connection.execute("select owner_id from runs where run_id = ?", (run_id,)).fetchone()[
            "owner_id"
        ]

    return await bench.database.read(owner)


async def waited(bench: Bench, run_id: RunId) -> float:
    """From when it was asked for to when it started, by the store's clock."""
    run = await ended(bench, run_id)
    assert run.started_at is not None
    return (run.started_at - run.created_at).total_seconds()


@rule("SB-12", "RX-51")
async def test_every_session_keeps_the_worker_that_it_had(bench: Bench):
    workers = [a_worker(bench, prefer=FOR_LONG, slots=100) for _ in range(2)]
    sessions = {f"s{n}": workers[n % 2].worker_id for n in range(40)}
    for session, worker_id in sessions.items():
        await had(bench, session, worker_id)
    async with at_work(workers[0]), at_work(workers[1]):
        for _ in range(2):
            runs = [
                (await bench.start("noop", session), worker_id) for session, worker_id in sessions.items()
            ]
            for run_id, worker_id in runs:
                assert await waited(bench, run_id) < TIMEOUT_SECONDS
                assert await worker_of(bench, run_id) == worker_id, (
                    "by chance this would be so in one case of 2**40"
                )


@rule("SB-12", "RX-31")
async def test_messages_that_wait_stay_with_it_too_and_in_order(bench: Bench):
    workers = [a_worker(bench, prefer=FOR_LONG) for _ in range(2)]
    for n, worker in enumerate(workers):
        await had(bench, f"s{n}", worker.worker_id)
    async with at_work(workers[0]), at_work(workers[1]):
        runs = [
            (await bench.start(script({"wait_ms": 5}), f"s{n % 2}"), workers[n % 2].worker_id)
            for n in range(20)
        ]
        for run_id, worker_id in runs:
            await ended(bench, run_id)
            assert await worker_of(bench, run_id) == worker_id
    for one in (runs[0::2], runs[1::2]):
        for (before, _), (after, _) in itertools.pairwise(one):
            first, second = await bench.run(before), await bench.run(after)
            assert first.finished_at is not None
            assert second.started_at is not None
            assert first.finished_at <= second.started_at


@rule("SB-12", "RX-51")
async def test_one_whose_worker_is_gone_starts_when_its_moment_is_over_and_the_next_one_at_once(bench: Bench):
    await had(bench, "s", DEAD)
    async with settled(bench):
        assert await waited(bench, await bench.start("noop")) >= A_MOMENT, "it was not left to the other"
        bench.clock.stop()  # so that nobody's moment is ever over
        assert await waited(bench, await bench.start("noop")) < A_MOMENT, (
            "the session has another worker by now"
        )


@rule("SB-12", "RX-51")
async def test_what_was_left_to_the_dead_before_a_worker_came_is_found_as_soon(bench: Bench):
    await had(bench, "s", DEAD)
    run_id = (
        await bench.runs.enqueue(a_run("s", "noop"))
    ).run.run_id  # without a ring: nobody was there to hear it
    async with at_work(a_worker(bench, prefer=1.0)):
        assert (await ended(bench, run_id)).status is Status.COMPLETED


@rule("SB-12", "RX-51")
async def test_a_worker_that_is_full_is_not_waited_for(bench: Bench):
    full = a_worker(bench, prefer=A_MOMENT, slots=1)
    await had(bench, "s", full.worker_id)
    await had(bench, "long", full.worker_id)
    async with at_work(full):
        long = await bench.start(script({"wait_ms": 60_000}), "long")

        async def is_running() -> bool:
            return (await bench.run(long)).status is Status.RUNNING

        await wait_for(is_running)
        async with settled(bench) as free:
            run_id = await bench.start("noop")
            assert await waited(bench, run_id) >= A_MOMENT
            assert await worker_of(bench, run_id) == free.worker_id
        await bench.queue.cancel(THE_OWNER, long)
        await ended(bench, long)


@rule("SB-12", "RX-23")
async def test_what_was_left_is_found_however_much_has_passed_since(bench: Bench):
    await had(bench, "s", DEAD)
    async with settled(bench):
        left = await bench.start("noop")
        passed = f"update run_counters set turn_no = turn_no + {2 * NEAR_TURNS}"
        await bench.database.write(lambda connection: connection.execute(passed).rowcount)
        newer = await bench.start(
            "noop", "new"
        )  # is taken at once, and then the near end of the queue is here
        assert (await ended(bench, newer)).status is Status.COMPLETED
        assert await waited(bench, left) >= A_MOMENT


@rule("SB-12")
async def test_without_the_setting_whoever_is_first_takes_it(bench: Bench):
    await had(bench, "s", DEAD)
    async with at_work(a_worker(bench, prefer=0)):
        run_id = await bench.start("noop")
        assert (await ended(bench, run_id)).status is Status.COMPLETED


@rule("SB-12")
async def test_the_other_looks_once_and_who_is_alone_never_looks_twice(bench: Bench):
    """One look when the moment is over, for all that came together; nothing else, and nothing at all for one's own sessions."""
    counted = [CountedRuns(bench) for _ in range(2)]
    mine, other = (
        a_worker(bench, prefer=A_MOMENT, runs=one, slots=16) for one in counted
    )  # room for all of them at once
    for n in range(8):
        await had(bench, f"s{n}", mine.worker_id)
    async with at_work(mine), at_work(other):

        async def have_begun() -> bool:
            return [one.looks for one in counted] == [2, 2]  # at once, and after a moment

        await wait_for(have_begun)
        runs = [(await bench.runs.enqueue(a_run(f"s{n}", "noop"))).run.run_id for n in range(8)]
        for worker in (mine, other):
            for _ in runs:  # together, however long it took to store them
                worker._on_notification(RunReady(prefers=mine.worker_id))
        for run_id in runs:
            await ended(bench, run_id)

        async def has_come_to_rest() -> bool:
            return not (
                mine._held or mine._wake.is_set() or counted[0].looking
            )  # who has ended a run looks for the next one

        await wait_for(has_come_to_rest)
        own_looks = counted[0].looks

        async def has_looked() -> bool:
            return counted[1].looks > 2

        await wait_for(has_looked)
        await asyncio.sleep(2 * A_MOMENT)
        assert counted[0].looks == own_looks, "nobody is looked after in one's own sessions"
        assert counted[1].looks - 2 < len(runs), "rings that come together share a look"


@rule("SB-12")
async def test_every_run_is_looked_for_when_its_own_moment_is_over():
    loop = asyncio.get_running_loop()
    looked: list[tuple[float, int]] = []
    done = asyncio.Event()

    def look(turn: int) -> None:
        looked.append((loop.time(), turn))
        if turn == 2:
            done.set()

    others = PreferredWorkerDelay(0.1, look)
    left_at = [loop.time()]
    others.leave(1)
    others.leave(1)
    await asyncio.sleep(0.05)
    left_at.append(loop.time())
    others.leave(2)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await done.wait()
    assert [turn for _, turn in looked] == [1, 2], "two that come together are one look"
    for left, (at, _) in zip(left_at, looked, strict=True):
        assert at - left >= 0.1
    assert SHARED_LOOK_SECONDS < 0.1
