"""Races on every store: concurrent calls start at a barrier; their answers must fit one order."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from easel.core.run.batch import Enqueued
from easel.core.run.status import Status
from easel.errors import IdempotencyConflict
from easel.ids import OWNER, RunId, WorkerId
from tests.requirements import case, rule
from tests.stores.harness import (
    CLAIM_SECONDS,
    A,
    B,
    Store,
    assert_stored,
    closing_events,
    decode_payload,
    delta_batch,
    ending_batch,
    event_types,
    get_run,
    new_run,
    read_log,
    start_runs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from easel.core.run.run import Claim
    from easel.host.ports import RunStore

RACES = 100  # per test
MAX_CONCURRENT_RACES = 20  # so that races also affect each other
TEST_TIMEOUT_SECONDS = 60.0


Call: TypeAlias = "Callable[[], Coroutine[Any, Any, Any]]"


async def race(*calls: Call) -> list[Any]:
    """Start all calls at the same moment, in this order. Returns their answers."""
    barrier = asyncio.Barrier(len(calls))

    async def start(call: Call) -> Any:
        await barrier.wait()
        return await call()

    return await asyncio.gather(*(start(call) for call in calls))


async def either_order(nth: int, one: Call, other: Call) -> tuple[Any, Any]:
    """Return the answers of two calls, mostly started together, sometimes one after the other."""
    match nth % 10:
        case 0:
            return await one(), await other()
        case 1:
            answer = await other()
            return await one(), answer
        case remainder if remainder % 2 == 0:
            first, second = await race(one, other)
        case _:
            second, first = await race(other, one)
    return first, second


async def repeat(race_once: Callable[[int], Coroutine[Any, Any, None]], times: int = RACES) -> None:
    async with asyncio.timeout(TEST_TIMEOUT_SECONDS):
        for first in range(0, times, MAX_CONCURRENT_RACES):
            await asyncio.gather(
                *(race_once(nth) for nth in range(first, min(first + MAX_CONCURRENT_RACES, times)))
            )


# --- claiming -----------------------------------------------------------------------------------------------


@case("J1")
@rule("RX-22", "RX-23", "RS-60")
async def test_eight_workers_claim_two_thousand_runs_each_once(runs: RunStore) -> None:
    total, workers = 2_000, 8
    for first in range(0, total, 500):
        await asyncio.gather(*(runs.enqueue(new_run(f"s{nth}")) for nth in range(first, first + 500)))
    claimed: list[Claim] = []

    async def work(worker_id: WorkerId) -> None:
        while len(claimed) < total:  # a claim skips rows that another worker locks, so it may return none
            claimed.extend(await runs.claim_queued(worker_id, 7, CLAIM_SECONDS, 0))

    async with asyncio.timeout(TEST_TIMEOUT_SECONDS):
        await race(*(lambda nth=nth: work(WorkerId(f"wrk_{nth}")) for nth in range(workers)))
    assert len(claimed) == total
    assert len({claim.run_id for claim in claimed}) == total
    assert {claim.attempt for claim in claimed} == {1}
    assert (await runs.queue_depth()).running == total


@case("J1")
@rule("RX-23", "RX-37")
async def test_expired_run_is_taken_over_by_one_of_many_workers(runs: RunStore, store: Store) -> None:
    claims = await start_runs(runs, *(new_run(f"s{nth}") for nth in range(RACES)))
    await store.sql(f"update runs set lease_until = {store.ago(5)}")
    taken: list[Claim] = []

    async def take(worker_id: WorkerId) -> None:
        while len(taken) < RACES:
            taken.extend(await runs.claim_expired(worker_id, 3, CLAIM_SECONDS))

    async with asyncio.timeout(TEST_TIMEOUT_SECONDS):
        await race(*(lambda nth=nth: take(WorkerId(f"wrk_{nth}")) for nth in range(8)))
    assert Counter(claim.run_id for claim in taken) == Counter(claim.run_id for claim in claims)
    assert {claim.attempt for claim in taken} == {2}


@rule("RX-13", "RX-30")
async def test_expired_worker_changes_nothing_during_a_takeover(runs: RunStore, store: Store) -> None:
    claims = await start_runs(runs, *(new_run(f"s{nth}") for nth in range(RACES)), worker=A)

    async def race_once(nth: int) -> None:
        stale = claims[nth]
        await store.expire_claim(stale.run_id)
        asks = [
            lambda: runs.append(ending_batch(stale, 1)),
            lambda: runs.renew([stale], CLAIM_SECONDS),
            lambda: runs.claim_expired(B, MAX_CONCURRENT_RACES, CLAIM_SECONDS),
        ]
        answers = await race(*(asks if nth % 2 else reversed(asks)))
        assert None in answers
        assert {} in answers

    await repeat(race_once)
    await runs.claim_expired(B, RACES, CLAIM_SECONDS)
    for run in await runs.list_runs(OWNER, session_id=None, statuses=[], before=None, limit=RACES):
        assert (run.status, run.attempt, run.last_seq) == (Status.RUNNING, 2, 0)


# --- turns of one session -------------------------------------------------------------------------------


@case("J10")
@rule("RX-31")
async def test_fifty_concurrent_equal_requests_create_one_run(runs: RunStore) -> None:
    answers: list[Enqueued] = await race(
        *(lambda: runs.enqueue(new_run("talk", key="k", digest="d")) for _ in range(50))
    )
    assert sum(answer.is_new for answer in answers) == 1
    assert len({answer.run.run_id for answer in answers}) == 1
    assert len(await runs.list_runs(OWNER, session_id=None, statuses=[], before=None, limit=10)) == 1
    with pytest.raises(IdempotencyConflict):
        await runs.enqueue(new_run("talk", key="k", digest="other"))


@case("J10")
async def test_concurrent_different_requests_under_one_key_conflict(runs: RunStore) -> None:
    async def attempt(key: str, digest: str) -> Enqueued | IdempotencyConflict:
        try:
            return await runs.enqueue(new_run(f"s-{key}", key=key, digest=digest))
        except IdempotencyConflict as conflict:
            return conflict

    async def race_once(nth: int) -> None:
        asks = [
            lambda digest=digest: attempt(f"k{nth}", digest) for digest in ("this", "that", "this", "that")
        ]
        answers = await race(*asks)
        [winner] = {answer.run.run_id for answer in answers if isinstance(answer, Enqueued)}
        assert sum(isinstance(answer, Enqueued) and answer.is_new for answer in answers) == 1
        assert sum(isinstance(answer, IdempotencyConflict) for answer in answers) == 2
        assert await runs.get(OWNER, winner) is not None

    await repeat(race_once)


async def test_turn_is_passed_when_an_arrival_races_with_an_end(runs: RunStore) -> None:
    """Either the ending run passes the turn to the new one, or the new one finds the turn free."""
    claims = await start_runs(runs, *(new_run(f"s{nth}") for nth in range(RACES)))
    passed = 0

    async def race_once(nth: int) -> None:
        nonlocal passed
        claim = claims[nth]
        _, appended = await either_order(
            nth, lambda: runs.enqueue(new_run(f"s{nth}")), lambda: runs.append(ending_batch(claim, 1))
        )
        passed += assert_stored(appended).turn_passed

    await repeat(race_once)
    depth = await runs.queue_depth()
    assert (depth.ready, depth.waiting, depth.running) == (RACES, 0, 0)
    assert 0 < passed < RACES, "both orders were tried"


async def test_turn_is_never_passed_to_a_cancelled_run(runs: RunStore) -> None:
    claims = await start_runs(runs, *(new_run(f"s{nth}") for nth in range(RACES)))

    async def race_once(nth: int) -> None:
        claim = claims[nth]
        waiting = [(await runs.enqueue(new_run(f"s{nth}"))).run.run_id for _ in range(2)]
        await either_order(
            nth,
            lambda: runs.append(ending_batch(claim, 1)),
            lambda: runs.request_cancel(OWNER, waiting[0], closing_events(waiting[0])),
        )
        assert (await get_run(runs, waiting[0])).status is Status.CANCELLED

    await repeat(race_once)
    depth = await runs.queue_depth()
    assert (depth.ready, depth.waiting, depth.running) == (RACES, 0, 0)


# --- cancelling ---------------------------------------------------------------------------------------------


async def assert_one_end(runs: RunStore, run_id: RunId) -> Status:
    run = await get_run(runs, run_id)
    log = await read_log(runs, run_id)
    dones = [event for event in log if event.type == "done"]
    assert run.is_terminal
    assert [decode_payload(event)["status"] for event in dones] == [run.status]
    assert log[-1] == dones[0]
    assert [event.seq for event in log] == list(range(1, run.last_seq + 1))
    return run.status


@case("J9")
@rule("RX-12", "RX-28", "RX-49")
async def test_cancel_that_races_with_the_end_leaves_one_end(runs: RunStore) -> None:
    claims = await start_runs(runs, *(new_run(f"s{nth}") for nth in range(RACES)))
    in_time_count = 0

    async def race_once(nth: int) -> None:
        nonlocal in_time_count
        claim = claims[nth]
        assert_stored(await runs.append(delta_batch(claim, 1, "last words")))
        cancel, appended = await either_order(
            nth,
            lambda: runs.request_cancel(OWNER, claim.run_id, closing_events(claim.run_id)),
            lambda: runs.append(ending_batch(claim, 2)),
        )
        assert cancel.changed == appended.cancel_requested, "a cancel request in time must reach the worker"
        in_time_count += cancel.changed
        assert await assert_one_end(runs, claim.run_id) is Status.COMPLETED

    await repeat(race_once)
    assert 0 < in_time_count < RACES, "both orders were tried"


@case("J9")
@rule("RX-12", "RS-37")
async def test_cancel_that_races_with_a_claim_ends_the_run_or_reaches_its_worker(
    runs: RunStore,
) -> None:
    outcomes: Counter[Status] = Counter()
    claimed: dict[RunId, Claim] = {}
    async with asyncio.timeout(TEST_TIMEOUT_SECONDS):
        for nth in range(RACES):  # one by one, because a claim takes any run
            new = new_run(f"s{nth}")
            await runs.enqueue(new)
            _, claims = await either_order(
                nth,
                lambda run_id=new.run_id: runs.request_cancel(OWNER, run_id, closing_events(run_id)),
                lambda: runs.claim_queued(A, 1, CLAIM_SECONDS, 0),
            )
            claimed.update({claim.run_id: claim for claim in claims})
    requested = await runs.requested_cancels(A)
    for run in await runs.list_runs(OWNER, session_id=None, statuses=[], before=None, limit=RACES):
        outcomes[run.status] += 1
        assert (run.run_id in claimed) == (run.status is Status.RUNNING), (
            "a run that was cancelled first is never claimed"
        )
        assert (run.run_id in requested) == (run.status is Status.RUNNING)
        if run.status is Status.RUNNING:
            assert_stored(await runs.append(ending_batch(claimed[run.run_id], 1, Status.CANCELLED)))
        assert await assert_one_end(runs, run.run_id) is Status.CANCELLED
    assert set(outcomes) == {Status.CANCELLED, Status.RUNNING}, "both orders were tried"


@case("J9")
@rule("RX-12", "RX-49")
async def test_cancel_that_races_with_a_release_takes_effect(runs: RunStore) -> None:
    claims = await start_runs(runs, *(new_run(f"s{nth}") for nth in range(RACES)))

    async def race_once(nth: int) -> None:
        claim = claims[nth]
        await either_order(
            nth,
            lambda: runs.request_cancel(OWNER, claim.run_id, closing_events(claim.run_id)),
            lambda: runs.release_claim(claim),
        )

    await repeat(race_once)
    left = {claim.run_id: claim for claim in await runs.claim_queued(B, RACES, CLAIM_SECONDS, 0)}
    for claim in claims:
        if claim.run_id in left:
            assert left[claim.run_id].cancel_requested
            assert_stored(await runs.append(ending_batch(left[claim.run_id], 1, Status.CANCELLED)))
        assert await assert_one_end(runs, claim.run_id) is Status.CANCELLED


# --- the log ------------------------------------------------------------------------------------------------


@case("E1")
@rule("RX-25", "RX-36")
async def test_readers_miss_no_event_while_eight_runs_are_written(runs: RunStore) -> None:
    batches = 100
    claims = await start_runs(runs, *(new_run(f"s{nth}") for nth in range(8)))

    appended = {claim.run_id: asyncio.Event() for claim in claims}

    async def write(claim: Claim) -> None:
        for number in range(1, batches + 1):
            assert_stored(
                await runs.append(
                    delta_batch(claim, number, *(f"{number}.{nth}" for nth in range(number % 4)))
                )
            )
            appended[claim.run_id].set()
        assert_stored(await runs.append(ending_batch(claim, batches + 1)))
        appended[claim.run_id].set()

    async def tail(claim: Claim) -> None:
        seen: list[int] = []
        while True:
            await appended[claim.run_id].wait()
            appended[claim.run_id].clear()
            head = (await runs.heads([claim.run_id]))[claim.run_id]
            page = await runs.events_after(claim.run_id, len(seen), 1_000)
            seen += [event.seq for event in page]
            assert seen == list(range(1, len(seen) + 1)), "no gap and no repetition"
            assert len(seen) >= head, "everything up to the head can be read"
            if page and page[-1].type == "done":
                return

    async with asyncio.timeout(TEST_TIMEOUT_SECONDS):
        await race(
            *(lambda claim=claim: write(claim) for claim in claims),
            *(lambda claim=claim: tail(claim) for claim in claims),
        )


@case("E1")
@rule("RX-29", "RX-25")
async def test_batch_sent_concurrently_is_stored_once(runs: RunStore) -> None:
    """A sender repeats a batch while the first request is still running. Other runs are not affected."""
    claims = await start_runs(runs, *(new_run(f"s{nth}") for nth in range(RACES)))

    async def race_once(nth: int) -> None:
        claim = claims[nth]
        answers = await race(*(lambda: runs.append(delta_batch(claim, 1, "a", "b")) for _ in range(4)))
        assert {assert_stored(answer).last_seq for answer in answers} == {2}
        answers = await race(*(lambda: runs.append(ending_batch(claim, 2)) for _ in range(3)))
        assert {assert_stored(answer).last_seq for answer in answers} == {5}
        assert await event_types(runs, claim.run_id) == [
            "message.delta",
            "message.delta",
            "message.completed",
            "run.status",
            "done",
        ]

    await repeat(race_once)


@case("E1", "J9")
@rule("RX-25", "RX-12")
async def test_cancel_request_is_reported_by_the_next_append(runs: RunStore) -> None:
    claims = await start_runs(runs, *(new_run(f"s{nth}") for nth in range(RACES)))

    async def race_once(nth: int) -> None:
        claim = claims[nth]
        requested = asyncio.Event()

        async def write() -> int:
            number = 0
            while True:
                number += 1
                was_requested = requested.is_set()
                appended = assert_stored(await runs.append(delta_batch(claim, number, "x")))
                assert appended.last_seq == number
                if appended.cancel_requested:
                    return number
                assert not was_requested, "an earlier cancel request must be reported"

        async def cancel() -> None:
            await runs.request_cancel(OWNER, claim.run_id, closing_events(claim.run_id))
            requested.set()

        number, _ = await race(write, cancel)
        assert_stored(await runs.append(ending_batch(claim, number + 1, Status.CANCELLED)))
        assert await assert_one_end(runs, claim.run_id) is Status.CANCELLED

    await repeat(race_once)
