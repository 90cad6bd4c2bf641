"""Run logs on every store: without gaps, in order, each batch once, nothing after the end; and pruning."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING
from unittest.mock import Mock, patch

import pytest

from easel.core.run.batch import Batch
from easel.core.run.status import Status
from easel.core.stream.envelope import Visibility
from easel.core.stream.log import Bounds
from easel.ids import OWNER, MessageId
from tests.requirements import rule
from tests.stores.harness import (
    CLAIM_SECONDS,
    CONSTRAINT_ERRORS,
    A,
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
    run_events,
    start_run,
    start_runs,
)

if TYPE_CHECKING:
    from easel.host.ports import RunStore

# --- appending ----------------------------------------------------------------------------------------------


@rule("RX-25", "RX-50")
async def test_events_have_no_gap(runs: RunStore) -> None:
    claim = await start_run(runs)
    assert assert_stored(await runs.append(delta_batch(claim, 1, "a"))).last_seq == 1
    assert assert_stored(await runs.append(delta_batch(claim, 2, "b", "c", "d"))).last_seq == 4
    assert assert_stored(await runs.append(delta_batch(claim, 3))).last_seq == 4
    assert assert_stored(await runs.append(delta_batch(claim, 4, "e"))).last_seq == 5
    log = await read_log(runs, claim.run_id)
    assert [(event.seq, decode_payload(event)["text"]) for event in log] == list(enumerate("abcde", start=1))
    assert [event.at for event in log] == sorted(event.at for event in log)
    assert (await get_run(runs, claim.run_id)).last_seq == 5


@rule("RX-17")
async def test_tail_gets_the_text_of_the_database_unparsed(store: Store, runs: RunStore) -> None:
    claim = await start_run(runs)
    assert_stored(await runs.append(delta_batch(claim, 1, "a", "ü")))
    stored = await store.sql("select cast(payload as text) as text from run_events order by seq")
    unused = Mock(side_effect=AssertionError)
    with patch("json.loads", unused), patch("json.dumps", unused), patch("msgspec.json", unused):
        page = await runs.events_after(claim.run_id, 0, 10)
    assert [event.data for event in page] == [row["text"] for row in stored]


async def test_event_is_read_back_as_sealed(runs: RunStore) -> None:
    claim = await start_run(runs)
    events = run_events(claim.run_id)
    sent = [
        events.start(1),
        events.thought(MessageId("msg_1"), "hm"),
        events.delta(MessageId("msg_1"), "a'b\"c\\ 🎨\r\n\u2028 \x01"),
    ]
    assert_stored(await runs.append(Batch(claim, 1, sent)))
    log = await read_log(runs, claim.run_id)
    assert [(event.type, event.visibility, decode_payload(event)) for event in log] == [
        (event.type, event.visibility, event.data) for event in sent
    ]
    assert [event.visibility for event in log] == [Visibility.PUBLIC, Visibility.INTERNAL, Visibility.PUBLIC]
    run = await get_run(runs, claim.run_id)
    assert all(event.at.utcoffset() == timedelta(0) and event.at >= run.created_at for event in log)


async def test_characters_that_a_database_cannot_store_do_not_fail_a_run(runs: RunStore) -> None:
    claim = await start_run(runs)
    assert_stored(await runs.append(delta_batch(claim, 1, "nul \x00 half \ud83c pair", "fine")))
    assert [decode_payload(event)["text"] for event in await read_log(runs, claim.run_id)] == [
        "nul \ufffd half \ufffd pair",
        "fine",
    ]


@rule("RX-29")
async def test_repeated_batch_stores_nothing_and_returns_the_first_answer(runs: RunStore) -> None:
    claim = await start_run(runs)
    first = assert_stored(await runs.append(delta_batch(claim, 1, "a", "b")))
    before = await read_log(runs, claim.run_id)
    assert await runs.append(delta_batch(claim, 1, "a", "b")) == first
    assert await runs.append(delta_batch(claim, 1, "something else altogether")) == first
    assert await read_log(runs, claim.run_id) == before
    assert assert_stored(await runs.append(delta_batch(claim, 2, "c"))).last_seq == 3


@rule("RX-29")
async def test_repeated_last_batch_returns_its_answer_after_the_end(runs: RunStore) -> None:
    claim = await start_run(runs, "talk")
    await runs.enqueue(new_run("talk"))
    first = assert_stored(await runs.append(ending_batch(claim, 1)))
    assert first.turn_passed
    assert assert_stored(await runs.append(ending_batch(claim, 1))).last_seq == first.last_seq
    assert (await event_types(runs, claim.run_id)).count("done") == 1
    assert len(await runs.claim_queued(A, 5, CLAIM_SECONDS, 0)) == 1


@rule("RX-29")
async def test_repeated_batch_reports_a_later_cancel_request(runs: RunStore) -> None:
    claim = await start_run(runs)
    assert not assert_stored(await runs.append(delta_batch(claim, 1, "a"))).cancel_requested
    await runs.request_cancel(OWNER, claim.run_id, closing_events(claim.run_id))
    assert assert_stored(await runs.append(delta_batch(claim, 1, "a"))).cancel_requested


@rule("RX-25", "RX-29")
@pytest.mark.parametrize("number", [-1, 0, 1, 2, 5, 100], ids=lambda number: f"batch {number} after 3")
async def test_batch_out_of_order_is_refused(runs: RunStore, number: int) -> None:
    claim = await start_run(runs)
    for nth in (1, 2, 3):
        assert_stored(await runs.append(delta_batch(claim, nth, "x")))
    before = await get_run(runs, claim.run_id)
    assert await runs.append(delta_batch(claim, number, "y")) is None
    assert await runs.append(ending_batch(claim, number)) is None
    assert await get_run(runs, claim.run_id) == before


async def test_batch_that_violates_a_constraint_fails_alone(runs: RunStore) -> None:
    """An error without a failure violates a constraint. The next batch of the run uses the same number."""
    wrong, right = await start_runs(runs, new_run("wrong"), new_run("right"))
    broken = Batch(wrong, 1, delta_batch(wrong, 1, "a").events, None, "a reason for nothing")
    answers = await asyncio.gather(
        runs.append(delta_batch(right, 1, "b")), runs.append(broken), return_exceptions=True
    )
    assert isinstance(answers[1], CONSTRAINT_ERRORS)
    assert not isinstance(answers[0], BaseException)
    assert assert_stored(answers[0]).last_seq == 1
    assert await read_log(runs, wrong.run_id) == []
    assert assert_stored(await runs.append(delta_batch(wrong, 1, "a"))).last_seq == 1


# --- ending -------------------------------------------------------------------------------------------------


@rule("RX-28")
@pytest.mark.parametrize(
    "status, error", [(Status.COMPLETED, None), (Status.FAILED, "the model failed"), (Status.CANCELLED, None)]
)
async def test_last_batch_ends_the_run_with_its_events(
    runs: RunStore, store: Store, status: Status, error: str | None
) -> None:
    claim = await start_run(runs)
    assert_stored(await runs.append(delta_batch(claim, 1, "a")))
    appended = assert_stored(await runs.append(ending_batch(claim, 2, status, error)))
    run = await get_run(runs, claim.run_id)
    assert (run.status, run.error_message, run.last_seq, appended.last_seq) == (status, error, 4, 4)
    assert run.finished_at is not None
    assert run.started_at is not None
    assert run.finished_at >= run.started_at
    log = await read_log(runs, claim.run_id)
    assert [event.type for event in log] == ["message.delta", "message.completed", "run.status", "done"]
    assert decode_payload(log[-1])["status"] == status
    [row] = await store.sql("select lease_until from runs")
    assert row["lease_until"] is None


@rule("RX-28")
async def test_no_event_is_stored_after_the_end(runs: RunStore, store: Store) -> None:
    claim = await start_run(runs)
    assert_stored(await runs.append(ending_batch(claim, 1)))
    before = await get_run(runs, claim.run_id)
    assert await runs.append(delta_batch(claim, 2, "late")) is None
    assert await runs.append(ending_batch(claim, 2, Status.FAILED, "late")) is None
    assert not await runs.release_claim(claim)
    assert await runs.renew([claim], CLAIM_SECONDS) == {}
    assert await runs.claim_queued(A, 5, CLAIM_SECONDS, 0) == []
    assert await runs.claim_expired(A, 5, CLAIM_SECONDS) == []
    assert await get_run(runs, claim.run_id) == before


async def test_run_can_end_without_events(runs: RunStore) -> None:
    claim = await start_run(runs)
    assert assert_stored(await runs.append(Batch(claim, 1, [], Status.COMPLETED))).last_seq == 0
    assert (await get_run(runs, claim.run_id)).status is Status.COMPLETED


# --- reading ------------------------------------------------------------------------------------------------


@rule("RX-36", "RX-50")
async def test_log_is_read_in_pages_after_a_cursor(runs: RunStore) -> None:
    claim = await start_run(runs)
    assert_stored(await runs.append(delta_batch(claim, 1, *(str(nth) for nth in range(1, 251)))))
    read: list[int] = []
    pages: list[int] = []
    while page := await runs.events_after(claim.run_id, read[-1] if read else 0, 100):
        read += [event.seq for event in page]
        pages.append(len(page))
    assert (read, pages) == (list(range(1, 251)), [100, 100, 50])
    assert await runs.events_after(claim.run_id, 250, 100) == []
    assert await runs.events_after(claim.run_id, 2**63 - 1, 100) == []


async def test_log_has_only_the_events_of_its_run(runs: RunStore) -> None:
    claim, other = await start_runs(runs, new_run("a"), new_run("b"))
    assert_stored(await runs.append(delta_batch(claim, 1, "mine")))
    assert_stored(await runs.append(delta_batch(other, 1, "yours", "too")))
    assert [decode_payload(event)["text"] for event in await read_log(runs, claim.run_id)] == ["mine"]
    assert await runs.heads([claim.run_id, other.run_id]) == {claim.run_id: 1, other.run_id: 2}


async def test_log_bounds_follow_appends_and_pruning(runs: RunStore) -> None:
    queued = (await runs.enqueue(new_run())).run
    assert await runs.bounds(OWNER, queued.run_id) == Bounds(oldest=1, newest=0, ended=False)
    [claim] = await runs.claim_queued(A, 1, CLAIM_SECONDS, 0)
    assert_stored(await runs.append(delta_batch(claim, 1, "a", "b")))
    assert await runs.bounds(OWNER, queued.run_id) == Bounds(oldest=1, newest=2, ended=False)
    assert_stored(await runs.append(ending_batch(claim, 2)))
    assert await runs.bounds(OWNER, queued.run_id) == Bounds(oldest=1, newest=5, ended=True)


# --- pruning ------------------------------------------------------------------------------------------------


async def test_prune_trims_old_logs_to_their_last_event(runs: RunStore, store: Store) -> None:
    old, recent, running = await start_runs(runs, *(new_run(f"s{n}") for n in range(3)))
    for claim in (old, recent, running):
        assert_stored(await runs.append(delta_batch(claim, 1, *"abc")))
    for claim in (old, recent):
        assert_stored(await runs.append(ending_batch(claim, 2)))
    await store.set_run_age(old.run_id, 100)
    await store.set_run_age(recent.run_id, 20)
    await store.sql(f"update runs set created_at = {store.ago(100)} where run_id = '{running.run_id}'")

    assert await runs.prune(60) == [old.run_id]
    assert await runs.bounds(OWNER, old.run_id) == Bounds(oldest=6, newest=6, ended=True)
    assert await event_types(runs, old.run_id) == ["done"]
    assert await runs.bounds(OWNER, recent.run_id) == Bounds(oldest=1, newest=6, ended=True)
    assert len(await read_log(runs, recent.run_id)) == 6
    assert len(await read_log(runs, running.run_id)) == 3
    assert await runs.prune(60) == []
    assert (await get_run(runs, old.run_id)).status is Status.COMPLETED


async def test_log_with_one_event_is_not_pruned(runs: RunStore, store: Store) -> None:
    one_event, no_event = await start_runs(runs, new_run("a"), new_run("b"))
    assert_stored(
        await runs.append(Batch(one_event, 1, closing_events(one_event.run_id)[1:], Status.COMPLETED))
    )
    assert_stored(await runs.append(Batch(no_event, 1, [], Status.COMPLETED)))
    for claim in (one_event, no_event):
        await store.set_run_age(claim.run_id, 100)
    assert await runs.prune(60) == []
    assert await event_types(runs, one_event.run_id) == ["done"]


async def test_long_log_is_pruned_completely(runs: RunStore, store: Store) -> None:
    claim = await start_run(runs)
    assert_stored(await runs.append(delta_batch(claim, 1, *("x" for _ in range(12_000)))))
    assert_stored(await runs.append(ending_batch(claim, 2)))
    await store.set_run_age(claim.run_id, 100)
    assert len(await runs.prune(60)) == 1
    assert await runs.bounds(OWNER, claim.run_id) == Bounds(oldest=12_003, newest=12_003, ended=True)
    assert [event.seq for event in await read_log(runs, claim.run_id)] == [12_003]
    assert await runs.prune(60) == []


@rule("RX-28")
async def test_any_reason_of_a_failure_can_be_stored(runs: RunStore, store: Store) -> None:
    """A provider's error may have a NUL or half a surrogate pair, which databases refuse."""
    claim = await start_run(runs)
    reason = "before \x00 and \ud83d after"
    assert_stored(await runs.append(ending_batch(claim, 1, Status.FAILED, reason)))
    run = await get_run(runs, claim.run_id)
    assert (run.status, run.error_message) == (Status.FAILED, "before \ufffd and \ufffd after")
