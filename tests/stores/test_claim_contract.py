"""Claims on every store: claiming, renewal, expiry, takeover and fencing."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from easel.core.run.events import UNCLAIMED_RUN_ID, RunEvents
from easel.core.run.status import Status
from easel.ids import WorkerId
from tests.requirements import case, rule
from tests.stores.harness import (
    CLAIM_SECONDS,
    A,
    B,
    Store,
    assert_stored,
    delta_batch,
    ending_batch,
    event_types,
    get_run,
    new_run,
    read_log,
    run_events,
    start_run,
    start_runs,
)

if TYPE_CHECKING:
    from easel.core.run.run import Claim
    from easel.host.ports import RunStore

HOUR = 3600


@rule("RX-22", "RX-13")
async def test_claimed_run_belongs_to_its_worker_until_the_claim_expires(
    runs: RunStore, store: Store
) -> None:
    queued = (await runs.enqueue(new_run("talk", "hello"))).run
    [claim] = await runs.claim_queued(A, 1, 15.0, 0)
    assert (claim.run_id, claim.worker_id, claim.attempt, claim.is_takeover) == (queued.run_id, A, 1, False)
    assert (claim.account_id, claim.session_id, claim.input_text, claim.max_attempts) == (
        "owner",
        "talk",
        "hello",
        3,
    )
    assert (claim.last_seq, claim.cancel_requested) == (0, False)
    assert 0 <= claim.queued_seconds < 30
    assert 0 <= claim.running_seconds < 30
    run = await get_run(runs, queued.run_id)
    assert (run.status, run.attempt) == (Status.RUNNING, 1)
    assert run.started_at is not None
    [row] = await store.sql(
        f"select owner_id, lease_until > {store.ago(-14)} as long_enough,"
        f" lease_until < {store.ago(-16)} as short_enough from runs"
    )
    assert (row["owner_id"], bool(row["long_enough"]), bool(row["short_enough"])) == (A, True, True)


@rule("RX-22", "RS-60")
async def test_claim_takes_the_oldest_runs_up_to_its_capacity(runs: RunStore) -> None:
    arrived = [(await runs.enqueue(new_run(f"s{n}"))).run.run_id for n in range(7)]
    assert [claim.run_id for claim in await runs.claim_queued(A, 3, CLAIM_SECONDS, 0)] == arrived[:3]
    assert await runs.claim_queued(A, 0, CLAIM_SECONDS, 0) == []
    rest = await runs.claim_queued(B, 10, CLAIM_SECONDS, 0)
    assert [claim.run_id for claim in rest] == arrived[3:]
    assert [claim.turn_no for claim in rest] == sorted(claim.turn_no for claim in rest)
    assert await runs.claim_queued(A, 10, CLAIM_SECONDS, 0) == []


@rule("RX-23")
async def test_claim_after_a_turn_skips_only_earlier_turns(runs: RunStore) -> None:
    [first, _] = await start_runs(runs, new_run("a"), new_run("b"))
    later = (await runs.enqueue(new_run("c"))).run
    assert [claim.run_id for claim in await runs.claim_queued(A, 5, CLAIM_SECONDS, first.turn_no)] == [
        later.run_id
    ]
    assert await runs.release_claim(first)
    assert await runs.claim_queued(A, 5, CLAIM_SECONDS, first.turn_no) == []
    assert [claim.run_id for claim in await runs.claim_queued(A, 5, CLAIM_SECONDS, 0)] == [first.run_id]


@rule("RX-26")
async def test_only_the_owner_of_a_claim_renews_it(runs: RunStore, store: Store) -> None:
    claim = await start_run(runs)
    stranger: Claim = _claim_of(claim, worker=B)
    earlier: Claim = _claim_of(claim, attempt=0)
    await store.expire_claim(claim.run_id, -60)  # one minute remains
    assert await runs.renew([stranger], CLAIM_SECONDS) == {}
    assert await runs.renew([earlier], CLAIM_SECONDS) == {}
    assert await runs.renew([claim], CLAIM_SECONDS) == {claim.run_id: False}
    [row] = await store.sql(f"select lease_until > {store.ago(-HOUR + 60)} as pushed from runs")
    assert row["pushed"]


@rule("RX-13", "RS-39")
async def test_other_worker_with_the_right_attempt_changes_nothing(runs: RunStore) -> None:
    claim = await start_run(runs, worker=A)
    assert_stored(await runs.append(delta_batch(claim, 1, "mine")))
    before = await get_run(runs, claim.run_id)
    stranger = _claim_of(claim, worker=B)
    assert await runs.append(delta_batch(stranger, 2, "yours")) is None
    assert await runs.append(ending_batch(stranger, 2)) is None
    assert await runs.append(delta_batch(stranger, 1, "mine")) is None
    assert not await runs.release_claim(stranger)
    assert await get_run(runs, claim.run_id) == before
    assert await event_types(runs, claim.run_id) == ["message.delta"]


@rule("RX-26")
async def test_many_claims_are_renewed_in_one_call_and_lost_ones_not_returned(
    runs: RunStore, store: Store
) -> None:
    valid, expired, ended, flagged = await start_runs(runs, *(new_run(f"s{n}") for n in range(4)))
    await store.expire_claim(expired.run_id)
    await runs.append(ending_batch(ended, 1))
    await runs.request_cancel(flagged.account_id, flagged.run_id, [])
    assert await runs.renew([valid, expired, ended, flagged], CLAIM_SECONDS) == {
        valid.run_id: False,
        flagged.run_id: True,
    }
    assert await runs.renew([], CLAIM_SECONDS) == {}


@rule("RX-37")
async def test_run_is_taken_over_only_after_its_claim_expired(runs: RunStore, store: Store) -> None:
    claim = await start_run(runs, worker=A)
    assert await runs.claim_expired(B, 5, CLAIM_SECONDS) == []
    await store.expire_claim(claim.run_id)
    [taken] = await runs.claim_expired(B, 5, CLAIM_SECONDS)
    assert (taken.run_id, taken.worker_id, taken.attempt, taken.is_takeover) == (claim.run_id, B, 2, True)
    assert await runs.claim_expired(A, 5, CLAIM_SECONDS) == []


@rule("RX-22", "RX-37")
async def test_earliest_expired_claims_are_taken_over_first_up_to_the_capacity(
    runs: RunStore, store: Store
) -> None:
    claims = await start_runs(runs, *(new_run(f"s{n}") for n in range(4)))
    for claim, seconds in zip(claims, (10, 40, 20, 30), strict=True):
        await store.expire_claim(claim.run_id, seconds)
    assert {claim.run_id for claim in await runs.claim_expired(B, 2, CLAIM_SECONDS)} == {
        claims[1].run_id,
        claims[3].run_id,
    }
    assert {claim.run_id for claim in await runs.claim_expired(B, 2, CLAIM_SECONDS)} == {
        claims[0].run_id,
        claims[2].run_id,
    }


@rule("RX-37", "RS-38")
async def test_runs_on_their_last_attempt_are_taken_over_separately(runs: RunStore, store: Store) -> None:
    """A run that may have crashed its workers is tried alone, so that it does not affect other runs."""
    first, last, exhausted = await start_runs(
        runs, new_run("a", attempts=3), new_run("b", attempts=2), new_run("c", attempts=1)
    )
    for claim in (first, last, exhausted):
        await store.expire_claim(claim.run_id)
    others = await runs.claim_expired(B, 5, CLAIM_SECONDS, last_chance=False)
    assert {claim.run_id for claim in others} == {first.run_id, exhausted.run_id}
    assert not any(claim.is_last_chance for claim in others)
    [chance] = await runs.claim_expired(B, 5, CLAIM_SECONDS, last_chance=True)
    assert (chance.run_id, chance.is_last_chance) == (last.run_id, True)
    assert await runs.claim_expired(B, 5, CLAIM_SECONDS, last_chance=True) == []


@rule("RX-30", "RX-13")
async def test_taken_over_run_continues_after_its_last_seq(runs: RunStore, store: Store) -> None:
    lost = await start_run(runs, worker=A)
    assert_stored(await runs.append(delta_batch(lost, 1, "one", "two")))
    before = await read_log(runs, lost.run_id)
    first_start = (await get_run(runs, lost.run_id)).started_at
    await store.expire_claim(lost.run_id)
    [taken] = await runs.claim_expired(B, 1, CLAIM_SECONDS)
    assert taken.last_seq == 2
    assert assert_stored(await runs.append(delta_batch(taken, 1, "three"))).last_seq == 3
    assert assert_stored(await runs.append(ending_batch(taken, 2))).last_seq == 6
    log = await read_log(runs, lost.run_id)
    assert log[:2] == before
    assert [event.seq for event in log] == [1, 2, 3, 4, 5, 6]
    assert (await get_run(runs, lost.run_id)).started_at == first_start


@rule("RX-13", "RS-39")
async def test_worker_that_lost_its_claim_changes_nothing(runs: RunStore, store: Store) -> None:
    stale = await start_run(runs, worker=A)
    assert_stored(await runs.append(delta_batch(stale, 1, "one")))
    await store.expire_claim(stale.run_id)
    [taken] = await runs.claim_expired(B, 1, CLAIM_SECONDS)
    before = await get_run(runs, stale.run_id)
    assert await runs.append(delta_batch(stale, 2, "late")) is None
    assert await runs.append(ending_batch(stale, 2)) is None
    assert await runs.append(delta_batch(stale, 1, "one")) is None
    assert await runs.renew([stale], CLAIM_SECONDS) == {}
    assert not await runs.release_claim(stale)
    assert await get_run(runs, stale.run_id) == before
    assert await event_types(runs, stale.run_id) == ["message.delta"]
    assert_stored(await runs.append(ending_batch(taken, 1)))


@rule("RX-13", "RX-37")
async def test_expired_claim_is_invalid_even_without_a_takeover(runs: RunStore, store: Store) -> None:
    claim = await start_run(runs)
    await store.expire_claim(claim.run_id)
    assert await runs.append(delta_batch(claim, 1, "late")) is None
    assert await runs.append(ending_batch(claim, 1)) is None
    assert await runs.renew([claim], CLAIM_SECONDS) == {}
    assert (await get_run(runs, claim.run_id)).status is Status.RUNNING


@rule("RX-13", "RS-39")
async def test_worker_is_fenced_from_its_own_earlier_attempt(runs: RunStore, store: Store) -> None:
    earlier = await start_run(runs, worker=A)
    await store.expire_claim(earlier.run_id)
    [later] = await runs.claim_expired(A, 1, CLAIM_SECONDS)
    assert (later.worker_id, later.attempt) == (A, 2)
    assert await runs.append(delta_batch(earlier, 1, "late")) is None
    assert await runs.append(ending_batch(earlier, 1)) is None
    assert await runs.renew([earlier], CLAIM_SECONDS) == {}
    assert not await runs.release_claim(earlier)
    assert await runs.append(delta_batch(later, 1, "now")) is not None
    assert await runs.append(delta_batch(earlier, 1, "late")) is None, "a batch number belongs to its attempt"


@rule("RS-38")
async def test_worker_that_takes_over_its_own_runs_loses_no_attempt(runs: RunStore, store: Store) -> None:
    await runs.enqueue(new_run(attempts=2))
    [claim] = await runs.claim_queued(A, 1, CLAIM_SECONDS, 0, OPENING)
    for attempt in (2, 3, 4):
        await store.expire_claim(claim.run_id)
        assert await runs.claim_expired(A, 1, CLAIM_SECONDS, last_chance=True, opening=OPENING) == []
        [claim] = await runs.claim_expired(A, 1, CLAIM_SECONDS, last_chance=False, opening=OPENING)
        assert (claim.attempt, claim.max_attempts, claim.is_exhausted) == (attempt, attempt + 1, False)
    assert [json.loads(event.data)["attempt"] for event in await read_log(runs, claim.run_id)] == [1, 2, 3, 4]
    await store.expire_claim(claim.run_id)
    [last] = await runs.claim_expired(B, 1, CLAIM_SECONDS, last_chance=True, opening=OPENING)
    assert (last.attempt, last.max_attempts) == (5, 5), "the worker A was lost"


@rule("RX-49")
async def test_released_run_keeps_its_place_and_its_attempts(runs: RunStore) -> None:
    [first, _] = await start_runs(runs, new_run("a"), new_run("b"))
    behind = (await runs.enqueue(new_run("c"))).run
    waiting = (await runs.enqueue(new_run("a"))).run
    assert_stored(await runs.append(delta_batch(first, 1, "one")))
    assert await runs.release_claim(first)
    run = await get_run(runs, first.run_id)
    assert (run.status, run.attempt, run.max_attempts, run.last_seq) == (Status.QUEUED, 1, 4, 1)
    assert run.started_at is not None
    assert not await runs.release_claim(first)

    again, other = await runs.claim_queued(B, 5, CLAIM_SECONDS, 0)
    assert (await get_run(runs, first.run_id)).started_at == run.started_at
    assert (again.run_id, other.run_id) == (first.run_id, behind.run_id)
    assert (again.attempt, again.max_attempts, again.last_seq, again.turn_no) == (2, 4, 1, first.turn_no)
    assert not again.is_exhausted
    assert assert_stored(await runs.append(ending_batch(again, 1))).turn_passed
    assert [claim.run_id for claim in await runs.claim_queued(B, 5, CLAIM_SECONDS, 0)] == [waiting.run_id]


async def test_cancel_request_survives_a_takeover(runs: RunStore, store: Store) -> None:
    lost, returned = await start_runs(runs, new_run("a"), new_run("b"))
    for claim in (lost, returned):
        await runs.request_cancel(claim.account_id, claim.run_id, [])
    assert await runs.release_claim(returned)
    await store.expire_claim(lost.run_id)
    assert [claim.cancel_requested for claim in await runs.claim_expired(B, 1, CLAIM_SECONDS)] == [True]
    assert [claim.cancel_requested for claim in await runs.claim_queued(B, 1, CLAIM_SECONDS, 0)] == [True]


@rule("RS-38")
async def test_run_without_attempts_left_is_claimed_once_more_to_be_closed(
    runs: RunStore, store: Store
) -> None:
    [claim] = await start_runs(runs, new_run(attempts=2))
    await store.expire_claim(claim.run_id)
    [second] = await runs.claim_expired(B, 1, CLAIM_SECONDS)
    assert not second.is_exhausted
    await store.expire_claim(claim.run_id)
    [third] = await runs.claim_expired(A, 1, CLAIM_SECONDS)
    assert (third.attempt, third.is_exhausted) == (3, True)
    assert_stored(await runs.append(ending_batch(third, 1, Status.FAILED, "gave up")))
    run = await get_run(runs, claim.run_id)
    assert (run.status, run.error_message) == (Status.FAILED, "gave up")


async def test_running_time_counts_over_all_attempts(runs: RunStore, store: Store) -> None:
    claim = await start_run(runs)
    await store.sql(
        f"update runs set created_at = {store.ago(100)}, started_at = {store.ago(50)},"
        f" lease_until = {store.ago(10)}"
    )
    [taken] = await runs.claim_expired(B, 1, CLAIM_SECONDS)
    assert taken.run_id == claim.run_id
    assert 100 <= taken.queued_seconds < 130
    assert 50 <= taken.running_seconds < 80


@case("J8")
@rule("RX-22", "RX-26", "RX-37")
@pytest.mark.parametrize("skew", [-HOUR, HOUR], ids=["an hour slow", "an hour fast"])
async def test_clock_of_the_worker_is_ignored(
    runs: RunStore, store: Store, monkeypatch: pytest.MonkeyPatch, skew: int
) -> None:
    real, real_ns = time.time, time.time_ns
    claim = await start_run(runs, worker=A)
    monkeypatch.setattr(time, "time", lambda: real() + skew)
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + skew * 1_000_000_000)
    skewed = await start_run(runs, "other", worker=WorkerId("wrk_skewed"))
    assert await runs.claim_expired(B, 5, 15.0) == []
    assert await runs.renew([skewed], 15.0) == {skewed.run_id: False}
    assert_stored(await runs.append(delta_batch(skewed, 1, "mine")))
    assert_stored(await runs.append(delta_batch(claim, 1, "mine too")))
    run = await get_run(runs, skewed.run_id)
    assert run.started_at is not None
    assert run.started_at - run.created_at < timedelta(seconds=60)
    await store.expire_claim(skewed.run_id)
    assert [taken.run_id for taken in await runs.claim_expired(B, 5, 15.0)] == [skewed.run_id]
    assert await runs.append(delta_batch(skewed, 2, "late")) is None


def _claim_of(claim: Claim, *, worker: WorkerId | None = None, attempt: int | None = None) -> Claim:
    """Return a forged claim."""
    return replace(
        claim, worker_id=worker or claim.worker_id, attempt=claim.attempt if attempt is None else attempt
    )


OPENING = RunEvents(UNCLAIMED_RUN_ID, agent_id="main", node_id="tool_loop").start(0)


@rule("RX-13", "RX-28", "CC-10", "CC-11")
async def test_claim_writes_the_opening_event_of_each_run(runs: RunStore) -> None:
    arrived = [(await runs.enqueue(new_run(f"s{n}"))).run.run_id for n in range(3)]
    claims = await runs.claim_queued(A, 5, CLAIM_SECONDS, 0, OPENING)
    assert [(claim.run_id, claim.last_seq) for claim in claims] == [(run_id, 0) for run_id in arrived]
    for claim in claims:
        [event] = await read_log(runs, claim.run_id)
        expected = run_events(claim.run_id).start(1)
        assert (event.seq, event.type, event.visibility) == (1, expected.type, expected.visibility)
        data = json.loads(event.data)
        assert data["attempt"] == 1
        assert data["provenance"] == {
            "kind": "agent",
            "agent_id": "main",
            "node_id": "tool_loop",
            "run_id": claim.run_id,
        }
        assert assert_stored(await runs.append(ending_batch(claim, 1))).last_seq == 4, (
            "the log continues after its opening without a gap"
        )


@rule("RX-22", "RX-37")
async def test_takeover_writes_an_opening_event_unless_it_only_closes_the_run(
    runs: RunStore, store: Store
) -> None:
    await runs.enqueue(new_run("talk", attempts=2))
    [first] = await runs.claim_queued(A, 1, CLAIM_SECONDS, 0, OPENING)
    await store.expire_claim(first.run_id)
    [second] = await runs.claim_expired(B, 1, CLAIM_SECONDS, opening=OPENING)
    await store.expire_claim(first.run_id)
    [third] = await runs.claim_expired(A, 1, CLAIM_SECONDS, opening=OPENING)
    assert [(claim.last_seq, claim.is_exhausted) for claim in (first, second, third)] == [
        (0, False),
        (1, False),
        (2, True),
    ]
    assert [json.loads(event.data)["attempt"] for event in await read_log(runs, first.run_id)] == [1, 2]
    assert (await get_run(runs, first.run_id)).last_seq == 2


@case("D4")
@rule("RX-22", "RX-49")
async def test_unacknowledged_claims_are_returned_to_their_worker(runs: RunStore, store: Store) -> None:
    for session in ("heard", "unheard", "spoken", "over", "ended"):
        await runs.enqueue(new_run(session))
    known, unknown, appended, expired, ended = await runs.claim_queued(A, 5, 600.0, 0, OPENING)
    await runs.enqueue(new_run("anothers"))
    await runs.claim_queued(B, 1, CLAIM_SECONDS, 0, OPENING)
    assert_stored(await runs.append(delta_batch(appended, 1, "a word")))
    assert_stored(await runs.append(ending_batch(ended, 1)))
    await store.expire_claim(expired.run_id)
    [again] = await runs.claim_unacknowledged(A, [known.run_id], CLAIM_SECONDS, opened=True)
    assert replace(again, queued_seconds=0, running_seconds=0) == replace(
        unknown, queued_seconds=0, running_seconds=0
    )
    [row] = await store.sql(
        f"select lease_until > {store.ago(-601)} as pushed_out from runs where run_id = '{unknown.run_id}'"
    )
    assert row["pushed_out"]
    assert assert_stored(await runs.append(ending_batch(again, 1))).last_seq == 4, "it continues normally"
    assert await runs.claim_unacknowledged(A, [known.run_id], CLAIM_SECONDS, opened=True) == []


@case("D4")
async def test_unacknowledged_closing_claim_has_no_opening_event(runs: RunStore, store: Store) -> None:
    await runs.enqueue(new_run("talk", attempts=1))
    [first] = await runs.claim_queued(A, 1, CLAIM_SECONDS, 0, OPENING)
    await store.expire_claim(first.run_id)
    [closing] = await runs.claim_expired(B, 1, CLAIM_SECONDS, opening=OPENING)
    [again] = await runs.claim_unacknowledged(B, [], CLAIM_SECONDS, opened=True)
    assert (again.last_seq, again.attempt, again.is_exhausted) == (closing.last_seq, 2, True)
