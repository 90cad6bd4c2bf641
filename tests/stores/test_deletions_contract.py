"""Deleted sessions and canvases on every store: marked at once, purged later in short transactions."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.action.execution import ExecutionStatus, StaleTransition
from easel.core.run.boards import Board
from easel.ids import OWNER, CanvasId, RunId, SessionId, scoped_key
from tests.requirements import case, rule
from tests.stores.harness import (
    CLAIM_SECONDS,
    CONSTRAINT_ERRORS,
    A,
    Store,
    assert_stored,
    closing_events,
    delta_batch,
)
from tests.stores.test_boards_contract import whiteboard_write
from tests.stores.test_canvases_contract import set_state
from tests.stores.test_executions_contract import (
    HERE,
    LEASE,
    create_canvas,
    end_transition,
    new_execution,
    start_execution,
    store_transition,
)
from tests.stores.test_sessions_contract import answer_batch, question_run
from tests.support.artifacts import id_of
from tests.support.artifacts import new as an_artifact
from tests.support.standstill import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from easel.core.run.run import Claim

TALK, OTHER = SessionId("talk"), SessionId("other")
CANVAS = CanvasId("cockpit")
MANY_EVENTS = 50_000
MAX_DELAY_SECONDS = 0.5  # of another write during a purge; one transaction would take seconds


@pytest.fixture
def small_steps(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("easel.stores.nouns.deletions.MAX_PURGED_ROWS", 5)
    monkeypatch.setattr("easel.stores.nouns.deletions.MAX_PURGED_RUNS", 2)


async def fill_session(store: Store) -> tuple[RunId, Claim, RunId]:
    """Create a session with an ended, a running and a waiting run; all have board values and references."""
    runs = store.runs
    artifacts = store.database.artifacts
    await artifacts.mark_stored(OWNER, await artifacts.claim(OWNER, [an_artifact(b"text")]))
    ended, running, waiting = [
        replace(question_run(text), idempotency_key=f"key {text}", request_digest="d")
        for text in ("ended", "running", "waiting")
    ]
    for new in (ended, running, waiting):
        await runs.enqueue(new)
        assert await store.database.boards.write(whiteboard_write(new.run_id, "plan")) is not None
        await artifacts.add_references(OWNER, [id_of(b"text")], run_id=new.run_id)
    [claim] = await runs.claim_queued(A, 1, CLAIM_SECONDS, 0)
    assert_stored(await runs.append(delta_batch(claim, 1, *("x" for _ in range(12)))))
    assert_stored(await runs.append(answer_batch(claim, 2, "done")))
    [claim] = await runs.claim_queued(A, 1, CLAIM_SECONDS, 0)
    assert_stored(await runs.append(delta_batch(claim, 1, "half")))
    return ended.run_id, claim, waiting.run_id


async def assert_session_is_not_found(store: Store, claim: Claim, *run_ids: RunId) -> None:
    runs, sessions, boards = store.runs, store.database.sessions, store.database.boards
    assert await sessions.get(OWNER, TALK) is None
    assert await sessions.list_sessions(OWNER, search="", before=None, limit=9) == []
    assert await sessions.list_messages(OWNER, TALK, before=None, limit=9) == []
    assert await sessions.rename(OWNER, TALK, "new") is None
    assert await sessions.delete(OWNER, TALK) is None
    assert await sessions.bounds(OWNER, TALK) is None
    assert await sessions.heads([scoped_key(OWNER, TALK)]) == {}
    assert await sessions.events_after(scoped_key(OWNER, TALK), 0, 9) == []
    for session_id in (None, TALK):
        assert await runs.list_runs(OWNER, session_id=session_id, statuses=[], before=None, limit=9) == []
    assert await runs.heads(run_ids) == {}
    for run_id in run_ids:
        assert await runs.get(OWNER, run_id) is None
        assert await runs.bounds(OWNER, run_id) is None
        assert await runs.request_cancel(OWNER, run_id, closing_events(run_id)) is None
        assert await boards.read(OWNER, run_id, Board.WHITEBOARD, edge_id=None, key=None) is None
        assert await boards.write(whiteboard_write(run_id, "late")) is None
    assert await runs.append(delta_batch(claim, 2, "too late")) is None
    assert await boards.write(whiteboard_write(claim.run_id, "late"), claim) is None
    assert await runs.renew([claim], CLAIM_SECONDS) == {}
    assert not await runs.release_claim(claim)
    assert await runs.claim_unacknowledged(A, [], CLAIM_SECONDS, opened=False) == []
    assert await runs.claim_expired(A, 9, CLAIM_SECONDS) == []
    assert await runs.claim_queued(A, 9, CLAIM_SECONDS, 0) == []


async def count_rows(store: Store, *tables: str) -> dict[str, int]:
    return {
        table: (await store.sql(f"select count(*) as count from {table}"))[0]["count"] for table in tables
    }


SESSION_TABLES = ("sessions", "runs", "run_events", "messages", "boards", "artifact_refs")
CANVAS_TABLES = (
    "canvases",
    "canvas_events",
    "executions",
    "canvas_assets",
    "canvas_views",
    "canvas_refreshes",
)


@rule("RX-13", "RX-32", "RX-54")
async def test_deleted_session_is_not_found_before_and_after_its_rows_are_purged(
    store: Store, small_steps: None
) -> None:
    ended, claim, waiting = await fill_session(store)
    run_ids = (ended, claim.run_id, waiting)
    assert sorted(await store.database.sessions.delete(OWNER, TALK) or ()) == sorted([claim.run_id, waiting])
    await assert_session_is_not_found(store, claim, *run_ids)
    steps = 0
    while deleted := await store.database.deletions.purge_session():
        steps += 1
        assert deleted <= 5
        await assert_session_is_not_found(store, claim, *run_ids)
    assert steps > 6
    assert set((await count_rows(store, *SESSION_TABLES)).values()) == {0}


@rule("RS-34")
@pytest.mark.parametrize("steps", [0, 3, 100])
async def test_session_is_created_again_at_once_and_has_no_old_data(
    store: Store, small_steps: None, steps: int
) -> None:
    runs, sessions = store.runs, store.database.sessions
    await fill_session(store)
    [before] = await sessions.list_sessions(OWNER, search="", before=None, limit=9)
    await sessions.delete(OWNER, TALK)
    for _ in range(steps):
        await store.database.deletions.purge_session()
    new = replace(question_run("anew"), idempotency_key="key ended", request_digest="other")
    enqueued = await runs.enqueue(new)
    assert (enqueued.is_new, enqueued.thread_seq) == (True, before.last_thread_seq + 1)
    assert [
        run.run_id for run in await runs.list_runs(OWNER, session_id=TALK, statuses=[], before=None, limit=9)
    ] == [new.run_id]
    messages = await sessions.list_messages(OWNER, TALK, before=None, limit=9)
    assert [message.text for message in messages] == ["anew"]
    bounds = await sessions.bounds(OWNER, TALK)
    assert bounds is not None
    assert (bounds.oldest, bounds.newest) == (before.last_thread_seq + 1, before.last_thread_seq + 1)
    [claim] = await runs.claim_queued(A, 9, CLAIM_SECONDS, 0)
    assert claim.run_id == new.run_id
    assert await store.purge() == 0


async def test_empty_session_is_created_again_before_it_is_purged(store: Store) -> None:
    sessions = store.database.sessions
    await sessions.create(OWNER, TALK, "old")
    await sessions.delete(OWNER, TALK)
    created = await sessions.create(OWNER, TALK, "new")
    assert created is not None
    assert created.title == "new"
    assert await sessions.create(OWNER, TALK, "again") is None


@rule("RS-34", "CV-34")
async def test_session_or_canvas_that_a_worker_purges_meanwhile_is_created_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker finishes the purge between the first statement of the create and the next one."""
    sessions, canvases, deletions = store.database.sessions, store.database.canvases, store.database.deletions
    await sessions.create(OWNER, TALK, "old")
    await sessions.delete(OWNER, TALK)
    await create_canvas(canvases)
    find_and_purge = deletions._purge

    async def purge_first(*arguments: Any) -> int:
        monkeypatch.setattr(deletions, "_purge", find_and_purge)
        await store.purge()
        return await find_and_purge(*arguments)

    monkeypatch.setattr(deletions, "_purge", purge_first)
    assert await sessions.create(OWNER, TALK, "new") is not None
    await canvases.delete(OWNER, CANVAS, lambda _: None)
    monkeypatch.setattr(deletions, "_purge", purge_first)
    await create_canvas(canvases)
    assert await canvases.get(OWNER, CANVAS) is not None


@rule("RX-31")
async def test_idempotency_key_of_a_deleted_session_is_free(store: Store) -> None:
    await fill_session(store)
    await store.database.sessions.delete(OWNER, TALK)
    new = replace(question_run("elsewhere", OTHER), idempotency_key="key waiting", request_digest="other")
    assert (await store.runs.enqueue(new)).is_new
    assert not (await store.runs.enqueue(new)).is_new
    await store.purge()
    assert await store.runs.get(OWNER, new.run_id) is not None


@case("D6")
async def test_older_code_cannot_enqueue_into_a_session_that_is_being_purged(store: Store) -> None:
    await fill_session(store)
    await store.database.sessions.delete(OWNER, TALK)
    with pytest.raises(CONSTRAINT_ERRORS):
        await store.sql("update sessions set active_run_id = coalesce(active_run_id, 'run_of_older_code')")


@rule("CV-34", "CV-23")
async def test_deleted_canvas_is_not_found_before_and_after_its_rows_are_purged(
    store: Store, small_steps: None
) -> None:
    canvases, actions = store.database.canvases, store.database.executions
    await create_canvas(canvases)
    running = await start_execution(canvases, new_execution(request_id="r1"))
    asked = await start_execution(canvases, new_execution(ExecutionStatus.ASKED))
    for n in range(12):
        await start_execution(canvases, new_execution(ExecutionStatus.COMPLETED, request_id=f"done {n}"))
    await store.runs.enqueue(replace(question_run("sent"), idempotency_key=running.event_id))

    async def assert_not_found() -> None:
        assert await canvases.get(OWNER, CANVAS) is None
        assert await canvases.list_canvases(OWNER, agent_id=None, after="", limit=9) == []
        assert await canvases.change(OWNER, CANVAS, set_state(n=1)) is None
        assert await canvases.delete(OWNER, CANVAS, lambda _: None) is None
        assert await canvases.bounds(OWNER, CANVAS) is None
        assert await canvases.heads([scoped_key(OWNER, CANVAS)]) == {}
        assert await actions.get(OWNER, running.event_id) is None
        assert await actions.find_by_request_id(OWNER, CANVAS, "r1") is None
        assert await actions.list_executions(OWNER, CANVAS, statuses=[], before=None, limit=9) == []
        assert await actions.renew(HERE, [running.event_id], LEASE) == set()
        assert await actions.find_orphaned([HERE], 9) == []
        assert await actions.adopt(running, [HERE], HERE, LEASE) is None

    assert asked.status is ExecutionStatus.ASKED
    assert await canvases.delete(OWNER, CANVAS, lambda _: None) == []
    await assert_not_found()
    steps = 0
    while deleted := await store.database.deletions.purge_canvas():
        steps += 1
        assert deleted <= 5
        await assert_not_found()
    assert steps > 5
    assert set((await count_rows(store, *CANVAS_TABLES)).values()) == {0}


@rule("RS-34", "CV-34")
@pytest.mark.parametrize("steps", [0, 2, 100])
async def test_canvas_is_created_again_at_once_and_has_no_old_data(
    store: Store, small_steps: None, steps: int
) -> None:
    canvases, actions = store.database.canvases, store.database.executions
    await create_canvas(canvases)
    execution = await start_execution(canvases, new_execution(request_id="r1"))
    for n in range(12):
        await canvases.change(OWNER, CANVAS, set_state(n=n))
    old = await canvases.bounds(OWNER, CANVAS)
    assert old is not None
    await canvases.delete(OWNER, CANVAS, lambda _: None)
    for _ in range(steps):
        await store.database.deletions.purge_canvas()
    await create_canvas(canvases)
    snapshot = await canvases.get(OWNER, CANVAS)
    assert snapshot is not None
    assert (snapshot.canvas.revision, snapshot.canvas.state) == (1, {"n": 0})
    bounds = await canvases.bounds(OWNER, CANVAS)
    assert bounds is not None
    assert (bounds.oldest, bounds.newest) == (old.newest + 1, old.newest + 1)
    assert await actions.list_executions(OWNER, CANVAS, statuses=[], before=None, limit=9) == []
    assert await actions.find_by_request_id(OWNER, CANVAS, "r1") is None
    with pytest.raises(StaleTransition):
        await store_transition(canvases, end_transition(execution))
    assert await store.purge() == 0


# --- locks --------------------------------------------------------------------------------------------------


async def add_events(store: Store, run_id: RunId, count: int) -> None:
    numbers = (
        f"generate_series(1000, {999 + count}) as n"
        if store.kind == "postgres"
        else f"(with recursive c(n) as (select 1000 union all select n + 1 from c where n < {999 + count})"
        " select n from c)"
    )
    await store.sql(
        "insert into run_events (run_id, seq, event_type, visibility, payload)"
        f""" select '{run_id}', n, 'message.delta', 'public', '{{"text": "a few words of an answer"}}'"""
        f" from {numbers}"
    )


async def measure_during(
    work: Callable[[], Awaitable[object]], write: Callable[[], Awaitable[object]]
) -> float:
    """Repeat `write` until `work` has ended. Returns the seconds of the slowest write."""
    slowest, task = 0.0, asyncio.ensure_future(work())
    while not task.done():
        watch = Stopwatch()
        await write()
        slowest = max(slowest, watch.seconds)
    await task
    return slowest


async def test_deleting_many_events_delays_no_other_write(store: Store) -> None:
    ended, _, _ = await fill_session(store)
    await add_events(store, ended, MANY_EVENTS)
    await store.runs.enqueue(question_run("elsewhere", OTHER))
    [claim] = await store.runs.claim_queued(A, 9, CLAIM_SECONDS, 0)
    number = 0

    async def append() -> None:
        nonlocal number
        number += 1
        assert_stored(await store.runs.append(delta_batch(claim, number, "a word")))

    async def delete() -> None:
        watch = Stopwatch()
        assert await store.database.sessions.delete(OWNER, TALK)
        print(f"marked in {watch.seconds * 1000:.1f} ms")
        assert watch.seconds < MAX_DELAY_SECONDS

    during_mark = await measure_during(delete, append)
    watch = Stopwatch()
    during_purge = await measure_during(store.purge, append)
    print(
        f"slowest append: {during_mark * 1000:.1f} ms during the mark,"
        f" {during_purge * 1000:.1f} ms during the purge of {watch.seconds:.1f} s; {number} appends"
    )
    assert max(during_mark, during_purge) < MAX_DELAY_SECONDS
    assert await store.runs.get(OWNER, ended) is None
    assert (await count_rows(store, "run_events"))["run_events"] == number


async def test_several_workers_purge_at_the_same_time(store: Store, small_steps: None) -> None:
    for session in "abcdef":
        await store.runs.enqueue(question_run("hello", session))
        await store.database.sessions.delete(OWNER, SessionId(session))
    for canvas in "abcdef":
        await create_canvas(store.database.canvases, canvas)
        await store.database.canvases.delete(OWNER, CanvasId(canvas), lambda _: None)
    await asyncio.gather(*(store.purge() for _ in range(4)))
    assert set((await count_rows(store, *SESSION_TABLES, *CANVAS_TABLES)).values()) == {0}
