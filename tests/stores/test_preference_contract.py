"""A session prefers its last worker for a moment, on every store. SB-12, RX-51"""

from __future__ import annotations

from typing import TYPE_CHECKING

from easel.core.run.status import Status
from easel.ids import OWNER
from tests.requirements import rule
from tests.stores.harness import (
    CLAIM_SECONDS,
    A,
    B,
    assert_stored,
    closing_events,
    ending_batch,
    get_run,
    new_run,
    start_run,
)

if TYPE_CHECKING:
    from easel.host.ports import RunStore
    from easel.ids import RunId, WorkerId
    from tests.stores.harness import Store

PREFER_SECONDS = 600.0  # longer than any test


async def claim_ids(
    runs: RunStore, worker: WorkerId, *, capacity: int = 10, seconds: float = PREFER_SECONDS
) -> list[RunId]:
    return [
        claim.run_id
        for claim in await runs.claim_queued(worker, capacity, CLAIM_SECONDS, 0, prefer_seconds=seconds)
    ]


async def run_once(runs: RunStore, worker: WorkerId, session: str = "talk") -> None:
    """Run a session once with this worker."""
    assert_stored(await runs.append(ending_batch(await start_run(runs, session, worker), 1)))


async def expire_preference(store: Store, run_id: RunId) -> None:
    await store.sql(f"update runs set turn_at = {store.ago(PREFER_SECONDS + 1)} where run_id = '{run_id}'")


@rule("SB-12", "RX-51")
async def test_new_session_has_no_preferred_worker(runs: RunStore):
    enqueued = await runs.enqueue(new := new_run())
    assert enqueued.prefers is None
    assert await claim_ids(runs, B) == [new.run_id]


@rule("SB-12", "RX-51")
async def test_next_run_is_left_to_the_worker_of_the_last_one(runs: RunStore):
    await run_once(runs, A)
    enqueued = await runs.enqueue(new := new_run())
    assert enqueued.prefers == A
    assert await claim_ids(runs, B) == []
    assert await claim_ids(runs, A) == [new.run_id]


@rule("SB-12", "RX-51")
async def test_any_worker_claims_the_run_after_the_preference_time(store: Store):
    await run_once(store.runs, A)
    await store.runs.enqueue(new := new_run())
    assert await claim_ids(store.runs, B) == []
    await expire_preference(store, new.run_id)
    assert await claim_ids(store.runs, B) == [new.run_id]


@rule("SB-12")
async def test_worker_without_preference_time_claims_at_once(runs: RunStore):
    await run_once(runs, A)
    await runs.enqueue(new := new_run())
    assert await claim_ids(runs, B, seconds=0) == [new.run_id]


@rule("SB-12", "RX-31")
async def test_passed_turn_prefers_the_same_worker_and_keeps_the_order(runs: RunStore):
    claim = await start_run(runs, worker=A)
    waiting = [new_run() for _ in range(3)]
    for new in waiting:
        assert (await runs.enqueue(new)).prefers is None, "it does not have the turn yet"
    for new in waiting:
        assert assert_stored(await runs.append(ending_batch(claim, 1))).turn_passed
        assert await claim_ids(runs, B) == []
        [claim] = await runs.claim_queued(A, 10, CLAIM_SECONDS, 0, prefer_seconds=PREFER_SECONDS)
        assert claim.run_id == new.run_id


@rule("SB-12")
async def test_skipped_run_uses_no_capacity_and_keeps_its_place(runs: RunStore):
    await run_once(runs, A, "old")
    await runs.enqueue(left := new_run("old"))
    news = [new_run(f"new{n}") for n in range(3)]
    for new in news:
        await runs.enqueue(new)
    assert await claim_ids(runs, B, capacity=2) == [new.run_id for new in news[:2]]
    assert await claim_ids(runs, A, capacity=1) == [left.run_id], "the oldest turn comes first"
    assert await claim_ids(runs, A) == [news[2].run_id], "the others can be claimed too"


@rule("SB-12", "RX-37")
async def test_takeover_changes_the_preferred_worker(store: Store):
    runs = store.runs
    expired = await start_run(runs, worker=A)
    await store.expire_claim(expired.run_id)
    [heir] = await runs.claim_expired(B, 5, CLAIM_SECONDS)
    assert heir.run_id == expired.run_id, "a run that was taken over has no preference"
    assert_stored(await runs.append(ending_batch(heir, 1)))
    assert await runs.append(ending_batch(expired, 1)) is None
    assert (await runs.enqueue(new := new_run())).prefers == B
    assert await claim_ids(runs, A) == []
    assert await claim_ids(runs, B) == [new.run_id]


@rule("SB-12", "RX-49")
async def test_released_run_has_no_preferred_worker(runs: RunStore):
    await run_once(runs, A)
    await runs.enqueue(new := new_run())
    [claim] = await runs.claim_queued(A, 1, CLAIM_SECONDS, 0, prefer_seconds=PREFER_SECONDS)
    assert await runs.release_claim(claim)
    assert await claim_ids(runs, B) == [new.run_id]


@rule("SB-12", "RS-37")
async def test_cancelled_queued_run_passes_the_preference_with_the_turn(runs: RunStore):
    await run_once(runs, A)
    await runs.enqueue(first := new_run())
    await runs.enqueue(second := new_run())
    answer = await runs.request_cancel(OWNER, first.run_id, closing_events(first.run_id))
    assert answer is not None
    assert (answer.turn_passed, answer.prefers) == (True, A)
    assert await claim_ids(runs, B) == []
    assert await claim_ids(runs, A) == [second.run_id]


@rule("SB-12")
async def test_failed_run_sets_the_preferred_worker_too(runs: RunStore):
    claim = await start_run(runs, worker=B)
    assert_stored(await runs.append(ending_batch(claim, 1, Status.FAILED, "reason")))
    assert (await get_run(runs, claim.run_id)).status is Status.FAILED
    assert (await runs.enqueue(new_run())).prefers == B


@rule("SB-12")
async def test_preference_is_per_session_and_user(store: Store):
    runs = store.runs
    other = await store.add_user("other")
    await run_once(runs, A, "one")
    await run_once(runs, B, "two")
    await runs.enqueue(one := new_run("one"))
    await runs.enqueue(two := new_run("two"))
    await runs.enqueue(theirs := new_run("one", user=other))
    assert set(await claim_ids(runs, B)) == {two.run_id, theirs.run_id}
    assert await claim_ids(runs, A) == [one.run_id]


@rule("SB-12")
async def test_preference_never_excludes_other_workers(store: Store):
    """A clock that was set back, and a turn without a time."""
    runs = store.runs
    for session, turn_at in (("future", store.ago(-3 * PREFER_SECONDS)), ("unknown", "null")):
        await run_once(runs, A, session)
        await runs.enqueue(new := new_run(session))
        await store.sql(f"update runs set turn_at = {turn_at} where run_id = '{new.run_id}'")
        assert await claim_ids(runs, B) == [new.run_id]
