"""A session prefers the worker that it had last, on every store: for a moment, and never more than that. SB-12, RX-51"""

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

A_WHILE = 600.0  # which is not over while the test runs


async def claimed(
    runs: RunStore, worker: WorkerId, *, room: int = 10, seconds: float = A_WHILE
) -> list[RunId]:
    return [
        claim.run_id
        for claim in await runs.claim_queued(worker, room, CLAIM_SECONDS, 0, prefer_seconds=seconds)
    ]


async def had(runs: RunStore, worker: WorkerId, session: str = "talk") -> None:
    """The session has had a run, and this worker ended it."""
    assert_stored(await runs.append(ending_batch(await start_run(runs, session, worker), 1)))


async def turned_long_ago(store: Store, run_id: RunId) -> None:
    await store.sql(f"update runs set turn_at = {store.ago(A_WHILE + 1)} where run_id = '{run_id}'")


@rule("SB-12", "RX-51")
async def test_a_new_session_prefers_nobody(runs: RunStore):
    enqueued = await runs.enqueue(new := new_run())
    assert enqueued.prefers is None
    assert await claimed(runs, B) == [new.run_id]


@rule("SB-12", "RX-51")
async def test_the_next_message_is_left_to_the_worker_of_the_last_one(runs: RunStore):
    await had(runs, A)
    enqueued = await runs.enqueue(new := new_run())
    assert enqueued.prefers == A
    assert await claimed(runs, B) == []
    assert await claimed(runs, A) == [new.run_id]


@rule("SB-12", "RX-51")
async def test_when_its_time_is_over_anybody_takes_it(store: Store):
    await had(store.runs, A)
    await store.runs.enqueue(new := new_run())
    assert await claimed(store.runs, B) == []
    await turned_long_ago(store, new.run_id)
    assert await claimed(store.runs, B) == [new.run_id]


@rule("SB-12")
async def test_who_waits_for_nobody_takes_it_at_once(runs: RunStore):
    await had(runs, A)
    await runs.enqueue(new := new_run())
    assert await claimed(runs, B, seconds=0) == [new.run_id]


@rule("SB-12", "RX-31")
async def test_a_turn_that_is_passed_on_stays_with_the_worker_and_the_order_is_kept(runs: RunStore):
    claim = await start_run(runs, worker=A)
    waiting = [new_run() for _ in range(3)]
    for new in waiting:
        assert (await runs.enqueue(new)).prefers is None, "its turn has not come"
    for new in waiting:
        assert assert_stored(await runs.append(ending_batch(claim, 1))).turn_passed
        assert await claimed(runs, B) == []
        [claim] = await runs.claim_queued(A, 10, CLAIM_SECONDS, 0, prefer_seconds=A_WHILE)
        assert claim.run_id == new.run_id


@rule("SB-12")
async def test_what_is_left_to_another_takes_nobodys_room_and_keeps_its_place(runs: RunStore):
    await had(runs, A, "old")
    await runs.enqueue(left := new_run("old"))
    news = [new_run(f"new{n}") for n in range(3)]
    for new in news:
        await runs.enqueue(new)
    assert await claimed(runs, B, room=2) == [new.run_id for new in news[:2]]
    assert await claimed(runs, A, room=1) == [left.run_id], "the oldest turn is still the first"
    assert await claimed(runs, A) == [news[2].run_id], "and it may have all the others too"


@rule("SB-12", "RX-37")
async def test_after_a_takeover_it_is_the_heir_that_is_preferred(store: Store):
    runs = store.runs
    lost = await start_run(runs, worker=A)
    await store.expire_claim(lost.run_id)
    [heir] = await runs.claim_expired(B, 5, CLAIM_SECONDS)
    assert heir.run_id == lost.run_id, "a run that was lost prefers nobody"
    assert_stored(await runs.append(ending_batch(heir, 1)))
    assert await runs.append(ending_batch(lost, 1)) is None
    assert (await runs.enqueue(new := new_run())).prefers == B
    assert await claimed(runs, A) == []
    assert await claimed(runs, B) == [new.run_id]


@rule("SB-12", "RX-49")
async def test_what_a_worker_hands_back_is_anybodys(runs: RunStore):
    await had(runs, A)
    await runs.enqueue(new := new_run())
    [claim] = await runs.claim_queued(A, 1, CLAIM_SECONDS, 0, prefer_seconds=A_WHILE)
    assert await runs.release_claim(claim)
    assert await claimed(runs, B) == [new.run_id]


@rule("SB-12", "RS-37")
async def test_a_run_cancelled_in_the_queue_passes_the_preference_on_with_the_turn(runs: RunStore):
    await had(runs, A)
    await runs.enqueue(first := new_run())
    await runs.enqueue(second := new_run())
    answer = await runs.request_cancel(OWNER, first.run_id, closing_events(first.run_id))
    assert answer is not None
    assert (answer.turn_passed, answer.prefers) == (True, A)
    assert await claimed(runs, B) == []
    assert await claimed(runs, A) == [second.run_id]


@rule("SB-12")
async def test_a_run_that_failed_counts_as_any_other(runs: RunStore):
    claim = await start_run(runs, worker=B)
    assert_stored(await runs.append(ending_batch(claim, 1, Status.FAILED, "reason")))
    assert (await get_run(runs, claim.run_id)).status is Status.FAILED
    assert (await runs.enqueue(new_run())).prefers == B


@rule("SB-12")
async def test_each_session_has_a_preference_of_its_own_and_each_user_too(store: Store):
    runs = store.runs
    other = await store.add_user("other")
    await had(runs, A, "one")
    await had(runs, B, "two")
    await runs.enqueue(one := new_run("one"))
    await runs.enqueue(two := new_run("two"))
    await runs.enqueue(theirs := new_run("one", user=other))
    assert await claimed(runs, B) == [two.run_id, theirs.run_id]
    assert await claimed(runs, A) == [one.run_id]


@rule("SB-12")
async def test_a_preference_never_excludes_whatever_the_row_says(store: Store):
    """A clock that was set back, and a turn given by code that knows of no such thing."""
    runs = store.runs
    for session, turn_at in (("future", store.ago(-3 * A_WHILE)), ("unknown", "null")):
        await had(runs, A, session)
        await runs.enqueue(new := new_run(session))
        await store.sql(f"update runs set turn_at = {turn_at} where run_id = '{new.run_id}'")
        assert await claimed(runs, B) == [new.run_id]
