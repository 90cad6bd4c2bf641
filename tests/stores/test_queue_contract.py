"""The queue on every store: runs are enqueued, wait for their session's turn, are listed and cancelled."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from easel.core.run.batch import QueueDepth
from easel.core.run.status import Status
from easel.errors import IdempotencyConflict
from easel.ids import OWNER, RunId, SessionId, new_run_id
from tests.requirements import rule
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
    start_run,
    start_runs,
)

if TYPE_CHECKING:
    from easel.core.run.run import NewRun
    from easel.host.ports import RunStore

# --- enqueueing ---------------------------------------------------------------------------------------------


@rule("RX-31", "RX-50")
async def test_enqueued_run_has_the_requested_values(runs: RunStore) -> None:
    new = new_run("talk", "hello", attempts=5)
    enqueued = await runs.enqueue(new)
    run = enqueued.run
    assert enqueued.is_new
    assert (run.run_id, run.account_id, run.session_id, run.input_text, run.max_attempts) == (
        new.run_id,
        OWNER,
        "talk",
        "hello",
        5,
    )
    assert (run.status, run.attempt, run.last_seq, run.oldest_seq) == (Status.QUEUED, 0, 0, 1)
    assert (run.started_at, run.finished_at, run.cancel_requested_at, run.error_message) == (
        None,
        None,
        None,
        None,
    )
    assert abs(run.created_at - datetime.now(UTC)) < timedelta(seconds=30)


@rule("RX-32")
async def test_run_is_read_back_as_enqueued(runs: RunStore) -> None:
    enqueued = (await runs.enqueue(new_run())).run
    assert await runs.get(OWNER, enqueued.run_id) == enqueued
    assert (await get_run(runs, enqueued.run_id)).created_at.utcoffset() == timedelta(0)


async def test_unknown_run_is_not_found(runs: RunStore) -> None:
    nobody = new_run_id()
    assert await runs.get(OWNER, nobody) is None
    assert await runs.bounds(OWNER, nobody) is None
    assert await runs.request_cancel(OWNER, nobody, closing_events(nobody)) is None
    assert await runs.events_after(nobody, 0, 100) == []
    assert await runs.heads([nobody]) == {}
    assert await runs.heads([]) == {}


TEXTS = [
    "",
    " ",
    "a'b\"c\\d",
    "line\r\nline\rline\n",
    "tab\t\x0b\x1b[31m",
    "naïve – 你好 🎨 \u2028\u2029",
    "e\u0301 é",
    "\ufeff",
    "x" * 250_000,
]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
async def test_input_text_is_stored_byte_for_byte(runs: RunStore, text: str) -> None:
    [claim] = await start_runs(runs, new_run(text=text))
    assert claim.input_text == text
    assert (await get_run(runs, claim.run_id)).input_text == text


@rule("RX-31")
async def test_repeated_idempotency_key_returns_the_first_run(runs: RunStore) -> None:
    first = await runs.enqueue(new_run("talk", key="k", digest="d"))
    again = await runs.enqueue(new_run("talk", key="k", digest="d"))
    assert first.is_new
    assert not again.is_new
    assert again.run == first.run
    assert await runs.queue_depth() == QueueDepth(ready=1, waiting=0, running=0)


async def test_repeated_idempotency_key_returns_the_current_state_of_the_run(runs: RunStore) -> None:
    [claim] = await start_runs(runs, new_run("talk", key="k", digest="d"))
    await runs.append(ending_batch(claim, 1))
    again = await runs.enqueue(new_run("talk", key="k", digest="d"))
    assert (again.is_new, again.run.run_id, again.run.status) == (False, claim.run_id, Status.COMPLETED)


async def test_idempotency_key_of_another_request_is_refused(runs: RunStore, store: Store) -> None:
    await runs.enqueue(new_run("talk", key="k", digest="d"))
    with pytest.raises(IdempotencyConflict) as refused:
        await runs.enqueue(new_run("elsewhere", key="k", digest="other"))
    assert (refused.value.details["what"], refused.value.details["key"]) == ("idempotency key", "k")
    assert [row["session_id"] for row in await store.sql("select session_id from sessions")] == ["talk"]


async def test_runs_without_an_idempotency_key_are_never_deduplicated(runs: RunStore) -> None:
    first, second = await runs.enqueue(new_run("a", digest="d")), await runs.enqueue(new_run("b", digest="d"))
    assert first.is_new
    assert second.is_new


@rule("RX-54")
async def test_idempotency_key_is_per_user(runs: RunStore, store: Store) -> None:
    guest = await store.add_user("guest")
    mine = await runs.enqueue(new_run(key="k", digest="d"))
    theirs = await runs.enqueue(new_run(user=guest, key="k", digest="other"))
    assert theirs.is_new
    assert theirs.run.run_id != mine.run.run_id


# --- turns -------------------------------------------------------------------------------------------------


async def finish_next(runs: RunStore) -> RunId:
    [claim] = await runs.claim_queued(A, 1, CLAIM_SECONDS, 0)
    assert_stored(await runs.append(ending_batch(claim, 1)))
    return claim.run_id


async def test_runs_of_one_session_get_their_turns_in_order_of_arrival(runs: RunStore) -> None:
    arrived = [(await runs.enqueue(new_run("talk"))).run.run_id for _ in range(5)]
    for expected in arrived:
        claims = await runs.claim_queued(A, 10, CLAIM_SECONDS, 0)
        assert [claim.run_id for claim in claims] == [expected]
        assert await runs.claim_queued(B, 10, CLAIM_SECONDS, 0) == []
        appended = assert_stored(await runs.append(ending_batch(claims[0], 1)))
        assert appended.turn_passed == (expected != arrived[-1])
    assert await runs.queue_depth() == QueueDepth(ready=0, waiting=0, running=0)


async def test_long_queue_of_one_session_does_not_delay_others(runs: RunStore) -> None:
    busy = [(await runs.enqueue(new_run("busy"))).run.run_id for _ in range(100)]
    others = [(await runs.enqueue(new_run(f"other-{n}"))).run.run_id for n in range(5)]
    assert await runs.queue_depth() == QueueDepth(ready=6, waiting=99, running=0)
    assert [claim.run_id for claim in await runs.claim_queued(A, 50, CLAIM_SECONDS, 0)] == [busy[0], *others]


async def test_sessions_take_turns(runs: RunStore) -> None:
    """Turns are claimed in the order in which they were given, so that sessions alternate."""
    for _ in range(3):
        for session in ("a", "b", "c"):
            await runs.enqueue(new_run(session))
    served = [(await get_run(runs, await finish_next(runs))).session_id for _ in range(9)]
    assert served == ["a", "b", "c"] * 3


async def test_same_session_id_of_two_users_is_two_sessions(runs: RunStore, store: Store) -> None:
    guest = await store.add_user("guest")
    mine, theirs = (
        (await runs.enqueue(new_run("talk"))).run,
        (await runs.enqueue(new_run("talk", user=guest))).run,
    )
    assert [claim.run_id for claim in await runs.claim_queued(A, 5, CLAIM_SECONDS, 0)] == [
        mine.run_id,
        theirs.run_id,
    ]


async def test_idle_session_gives_its_next_run_the_turn_at_once(runs: RunStore) -> None:
    await runs.enqueue(new_run("talk"))
    await finish_next(runs)
    later = (await runs.enqueue(new_run("talk"))).run
    assert await finish_next(runs) == later.run_id


@pytest.mark.parametrize(
    "status, error", [(Status.COMPLETED, None), (Status.FAILED, "why"), (Status.CANCELLED, None)]
)
async def test_every_end_of_a_run_passes_the_turn(runs: RunStore, status: Status, error: str | None) -> None:
    claim = await start_run(runs, "talk")
    waiting = (await runs.enqueue(new_run("talk"))).run
    assert assert_stored(await runs.append(ending_batch(claim, 1, status, error))).turn_passed
    assert [claim.run_id for claim in await runs.claim_queued(B, 5, CLAIM_SECONDS, 0)] == [waiting.run_id]


# --- cancelling ---------------------------------------------------------------------------------------------


@rule("RS-37", "RX-12")
async def test_queued_run_is_cancelled_at_once_with_its_closing_events(runs: RunStore) -> None:
    queued = (await runs.enqueue(new_run())).run
    answer = await runs.request_cancel(OWNER, queued.run_id, closing_events(queued.run_id))
    assert answer is not None
    assert (answer.changed, answer.turn_passed, answer.run.status) == (True, False, Status.CANCELLED)
    assert answer.run.finished_at == answer.run.cancel_requested_at is not None
    assert answer.run == await runs.get(OWNER, queued.run_id)
    events = await read_log(runs, queued.run_id)
    assert [(event.seq, event.type, decode_payload(event)["status"]) for event in events] == [
        (1, "run.status", "cancelled"),
        (2, "done", "cancelled"),
    ]
    assert answer.run.last_seq == 2
    assert await runs.claim_queued(A, 5, CLAIM_SECONDS, 0) == []


async def test_cancelled_run_passes_its_turn(runs: RunStore) -> None:
    first, second = (await runs.enqueue(new_run("talk"))).run, (await runs.enqueue(new_run("talk"))).run
    answer = await runs.request_cancel(OWNER, first.run_id, closing_events(first.run_id))
    assert answer is not None
    assert answer.turn_passed
    assert [claim.run_id for claim in await runs.claim_queued(A, 5, CLAIM_SECONDS, 0)] == [second.run_id]


async def test_cancelled_waiting_run_is_skipped_without_passing_a_turn(runs: RunStore) -> None:
    claim = await start_run(runs, "talk")
    second, third = (await runs.enqueue(new_run("talk"))).run, (await runs.enqueue(new_run("talk"))).run
    answer = await runs.request_cancel(OWNER, second.run_id, closing_events(second.run_id))
    assert answer is not None
    assert (answer.run.status, answer.turn_passed) == (Status.CANCELLED, False)
    assert await runs.claim_queued(B, 5, CLAIM_SECONDS, 0) == []
    assert_stored(await runs.append(ending_batch(claim, 1)))
    assert [claim.run_id for claim in await runs.claim_queued(B, 5, CLAIM_SECONDS, 0)] == [third.run_id]


@rule("RX-12")
async def test_cancel_of_a_running_run_sets_a_flag_for_its_worker(runs: RunStore) -> None:
    claim, _ = await start_runs(runs, new_run("this"), new_run("that"))
    answer = await runs.request_cancel(OWNER, claim.run_id, closing_events(claim.run_id))
    assert answer is not None
    assert (answer.changed, answer.run.status) == (True, Status.RUNNING)
    assert answer.run.cancel_requested_at is not None
    assert await runs.requested_cancels(A) == {claim.run_id}
    assert await runs.requested_cancels(B) == set()
    assert assert_stored(await runs.append(delta_batch(claim, 1, "still here"))).cancel_requested
    assert await runs.renew([claim], CLAIM_SECONDS) == {claim.run_id: True}
    assert_stored(await runs.append(ending_batch(claim, 2, Status.CANCELLED)))
    assert await runs.requested_cancels(A) == set()
    assert await event_types(runs, claim.run_id) == [
        "message.delta",
        "message.completed",
        "run.status",
        "done",
    ]


async def test_first_cancel_request_sets_the_time(runs: RunStore) -> None:
    claim = await start_run(runs)
    first = await runs.request_cancel(OWNER, claim.run_id, closing_events(claim.run_id))
    second = await runs.request_cancel(OWNER, claim.run_id, closing_events(claim.run_id))
    assert first is not None
    assert second is not None
    assert (second.changed, second.run) == (False, first.run)


@rule("RX-28")
@pytest.mark.parametrize(
    "status, error", [(Status.COMPLETED, None), (Status.FAILED, "why"), (Status.CANCELLED, None)]
)
async def test_cancel_of_an_ended_run_changes_nothing(
    runs: RunStore, status: Status, error: str | None
) -> None:
    claim = await start_run(runs)
    await runs.append(ending_batch(claim, 1, status, error))
    before = await get_run(runs, claim.run_id)
    answer = await runs.request_cancel(OWNER, claim.run_id, closing_events(claim.run_id))
    assert answer is not None
    assert (answer.changed, answer.turn_passed, answer.run) == (False, False, before)
    assert (await event_types(runs, claim.run_id)).count("done") == 1


# --- lists --------------------------------------------------------------------------------------------------


async def list_ids(
    runs: RunStore, *statuses: Status, session: str | None = None, before: int | None = None, limit: int = 100
) -> list[RunId]:
    found = await runs.list_runs(
        OWNER,
        session_id=SessionId(session) if session else None,
        statuses=statuses,
        before=before,
        limit=limit,
    )
    return [run.run_id for run in found]


async def test_list_is_newest_first_and_continues_below_its_last_run(runs: RunStore) -> None:
    arrived = [(await runs.enqueue(new_run(f"s{n % 2}"))).run for n in range(7)]
    newest_first = [run.run_id for run in reversed(arrived)]
    assert await list_ids(runs) == newest_first
    assert await list_ids(runs, limit=3) == newest_first[:3]
    assert await list_ids(runs, limit=3, before=arrived[4].queue_no) == newest_first[3:6]
    assert await list_ids(runs, before=arrived[0].queue_no) == []
    assert await list_ids(runs, session="s1") == [run.run_id for run in reversed(arrived[1::2])]
    assert await list_ids(runs, session="s1", limit=1, before=arrived[5].queue_no) == [arrived[3].run_id]
    assert await list_ids(runs, session="none") == []


async def test_list_is_filtered_before_the_limit(runs: RunStore) -> None:
    ended = [await start_run(runs, f"ended-{n}") for n in range(3)]
    for claim, status, error in zip(
        ended, (Status.COMPLETED, Status.FAILED, Status.CANCELLED), (None, "why", None), strict=True
    ):
        await runs.append(ending_batch(claim, 1, status, error))
    running = await start_run(runs, "running")
    queued = [(await runs.enqueue(new_run(f"queued-{n}"))).run.run_id for n in range(3)]
    assert await list_ids(runs, Status.FAILED, limit=1) == [ended[1].run_id]
    assert await list_ids(runs, Status.COMPLETED, Status.CANCELLED) == [ended[2].run_id, ended[0].run_id]
    assert await list_ids(runs, Status.RUNNING) == [running.run_id]
    assert await list_ids(runs, Status.QUEUED, limit=2) == [queued[2], queued[1]]
    assert await list_ids(runs, Status.QUEUED, session="queued-0") == [queued[0]]
    assert await list_ids(runs, Status.RUNNING, session="queued-0") == []


@rule("RX-54")
async def test_run_of_another_user_is_not_found(runs: RunStore, store: Store) -> None:
    guest = await store.add_user("guest")
    new: NewRun = new_run("talk", user=guest)
    await runs.enqueue(new)
    assert await runs.get(OWNER, new.run_id) is None
    assert await runs.bounds(OWNER, new.run_id) is None
    assert await runs.request_cancel(OWNER, new.run_id, closing_events(new.run_id)) is None
    assert await list_ids(runs) == []
    assert await list_ids(runs, session="talk") == []
    theirs = await get_run(runs, new.run_id, guest)
    assert (theirs.status, theirs.cancel_requested_at, theirs.last_seq) == (Status.QUEUED, None, 0)

    [claim] = await runs.claim_queued(A, 1, CLAIM_SECONDS, 0)
    assert claim.account_id == guest
    assert await runs.request_cancel(OWNER, new.run_id, closing_events(new.run_id)) is None
    assert (await get_run(runs, new.run_id, guest)).cancel_requested_at is None


async def test_queue_depth_counts_ready_waiting_and_running_runs(runs: RunStore) -> None:
    assert await runs.queue_depth() == QueueDepth(ready=0, waiting=0, running=0)
    for number in range(2):
        await start_run(runs, f"running-{number}")
    for session in ("running-0", "ready-0", "ready-1", "ready-1", "ready-1"):
        await runs.enqueue(new_run(session))
    assert await runs.queue_depth() == QueueDepth(ready=2, waiting=3, running=2)


async def test_probe_writes_durably(runs: RunStore, store: Store) -> None:
    await runs.probe()
    await runs.probe()
    assert len(await store.sql("select * from probes")) == 1
