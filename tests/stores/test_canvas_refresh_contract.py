"""Refresh jobs on every store: claims, renewal, due times and failures."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from easel.core.canvas.canvas import CanvasSnapshot, Change, NewCanvas, View
from easel.core.canvas.events import CanvasEvents
from easel.core.canvas.spec import Refresh
from easel.ids import OWNER, AccountId, CanvasId
from tests.requirements import case, rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from easel.core.canvas.refresh import Due, Failing, Job
    from easel.host.ports import ExecutionStore
    from tests.stores.harness import Store

NAME = CanvasId("cockpit")
EVENTS = CanvasEvents(NAME, agent_id="owner", event_id="evt_1")
HERE, THERE = "ins_here", "ins_there"
LEASE, EVERY = 600.0, 60.0
POLL, WATCH = (
    Refresh("poll", 60_000, "look", is_enabled=True),
    Refresh("watch", 60_000, "look", is_enabled=True, only_watched=True),
)


@pytest.fixture
def jobs(store: Store) -> ExecutionStore:
    return store.database.executions


@pytest_asyncio.fixture(autouse=True)
async def cockpit(store: Store) -> None:
    await create_canvas(store, POLL)


async def create_canvas(store: Store, *refreshes: Refresh, name: str = NAME, user: AccountId = OWNER) -> None:
    new = NewCanvas(
        account_id=user,
        canvas_id=CanvasId(name),
        agent_id="main",
        title="Cockpit",
        spec={},
        state={"n": 0},
        refreshes=list(refreshes),
    )
    assert await store.database.canvases.create(new, EVENTS.created(1, "Cockpit")) is not None


async def advance_clock(store: Store, seconds: float) -> None:
    """Move the due times of all jobs into the past."""
    if store.kind == "sqlite":
        columns = {name: f"{name} - {round(seconds * 1_000_000)}" for name in ("next_at", "lease_until")}
    else:
        columns = {name: f"{name} - interval '{seconds} seconds'" for name in ("next_at", "lease_until")}
    await store.sql(
        "update canvas_refreshes set " + ", ".join(f"{name} = {then}" for name, then in columns.items())
    )


async def claim_jobs(
    jobs: ExecutionStore,
    owner: str = HERE,
    *,
    capacity: int = 10,
    running: Sequence[Job] = (),
    unwatched: bool = True,
) -> list[Due]:
    return await jobs.claim_refreshes(owner, capacity, LEASE, running=running, unwatched=unwatched)


async def open_view(store: Store, seconds: float = LEASE) -> None:
    view = View("view_1", "browser", "con_1")
    opened = Change(events=[EVENTS.view_opened(1, view, 1)], is_mutation=False, opened=view)
    assert await store.database.canvases.change(OWNER, NAME, lambda _: opened, seconds=seconds) is not None


@rule("CV-19")
async def test_job_is_due_one_interval_after_creation_and_after_each_run(
    store: Store, jobs: ExecutionStore
) -> None:
    due_in = await jobs.next_refresh(unwatched=True)
    assert due_in is not None
    assert 0 < due_in <= EVERY
    assert await claim_jobs(jobs) == []
    await advance_clock(store, EVERY)
    [due] = await claim_jobs(jobs)
    assert (due.job, due.action_id, due.every_ms, due.failures) == ((OWNER, NAME, "poll"), "look", 60_000, 0)
    await jobs.finish_refresh(HERE, due, failures=3, delay=100)
    due_in = await jobs.next_refresh(unwatched=True)
    assert due_in is not None
    assert 90 < due_in <= 100
    await advance_clock(store, 100)
    [due] = await claim_jobs(jobs)
    assert due.failures == 3


@rule("RS-45", "CV-51")
async def test_failing_job_is_part_of_its_canvas_until_it_succeeds(
    store: Store, jobs: ExecutionStore
) -> None:
    await store.add_user("ann")
    await create_canvas(store, POLL, WATCH, name="other")
    await create_canvas(store, POLL, user=AccountId("ann"))
    assert await failing(store) == []
    error = {"code": 503, "name": "UNAVAILABLE", "message": "laptop is “away” \\ \u2028"}
    await advance_clock(store, EVERY)
    due = next(due_job for due_job in await claim_jobs(jobs) if due_job.job == (OWNER, NAME, "poll"))
    await jobs.finish_refresh(HERE, due, failures=2, delay=100, error=error)
    [job] = await failing(store)
    assert (job.refresh_id, job.action_id, job.failures, job.error) == ("poll", "look", 2, error)
    assert 90 < job.retry_seconds <= 100
    assert (await failing(store, "other"), await failing(store, user=AccountId("ann"))) == ([], []), (
        "each canvas has its own"
    )
    await advance_clock(store, 110)
    [job] = await failing(store)
    assert -20 < job.retry_seconds < 0, "it is due"
    [due] = [due_job for due_job in await claim_jobs(jobs) if due_job.job == (OWNER, NAME, "poll")]
    assert [due_job.failures for due_job in await failing(store)] == [2], "this run has no outcome yet"
    await jobs.finish_refresh(HERE, due, failures=3, delay=100)
    assert [(due_job.failures, due_job.error) for due_job in await failing(store)] == [(3, None)]
    await advance_clock(store, 100)
    [due] = [due_job for due_job in await claim_jobs(jobs) if due_job.job == (OWNER, NAME, "poll")]
    await jobs.finish_refresh(HERE, due, failures=0, delay=100)
    assert await failing(store) == []


async def test_failure_of_a_job_is_deleted_with_the_job(store: Store, jobs: ExecutionStore) -> None:
    await advance_clock(store, EVERY)
    [due] = await claim_jobs(jobs)
    await jobs.finish_refresh(HERE, due, failures=1, delay=100, error={"message": "no"})
    seen: list[int] = []

    def new_spec(*refreshes: Refresh) -> Any:
        def decide(snapshot: CanvasSnapshot) -> Change:
            seen.append(len(snapshot.failing))
            return Change(events=[EVENTS.updated(2, [""])], spec={}, refreshes=list(refreshes))

        return store.database.canvases.change(OWNER, NAME, decide)

    await new_spec(POLL)
    assert len(await failing(store)) == 1, "the same job continues"
    await new_spec()
    assert (await failing(store), seen) == ([], [1, 1]), "a change of the canvas sees it too"


async def failing(store: Store, name: str = NAME, user: AccountId = OWNER) -> list[Failing]:
    snapshot = await store.database.canvases.get(user, CanvasId(name))
    assert snapshot is not None
    return list(snapshot.failing)


@rule("CV-19")
@case("X9")
async def test_concurrent_claims_give_a_job_to_one_owner(store: Store, jobs: ExecutionStore) -> None:
    await advance_clock(store, EVERY)
    found = await asyncio.gather(*(claim_jobs(jobs, f"ins_{number}") for number in range(10)))
    assert sorted(map(len, found)) == [0] * 9 + [1]


@case("X9")
async def test_claimed_job_is_not_the_next_due_job(store: Store, jobs: ExecutionStore) -> None:
    await advance_clock(store, EVERY)
    [due] = await claim_jobs(jobs)
    assert await jobs.next_refresh(unwatched=True) is None, (
        "otherwise every instance would poll for a running job"
    )
    await advance_clock(store, LEASE + 1)
    assert await jobs.next_refresh(unwatched=True) is not None, "its claim has expired"
    await jobs.finish_refresh(HERE, due, failures=0, delay=EVERY)
    due_in = await jobs.next_refresh(unwatched=True)
    assert due_in is not None
    assert due_in > 0


@case("X9")
async def test_expired_job_is_claimed_by_others_but_not_by_the_process_that_runs_it(
    store: Store, jobs: ExecutionStore
) -> None:
    await create_canvas(store, POLL, name="other")
    await advance_clock(store, EVERY)
    claimed = [due.job for due in await claim_jobs(jobs)]
    assert len(claimed) == 2
    await advance_clock(store, LEASE + 1)
    assert await claim_jobs(jobs, running=claimed) == []
    [due] = await claim_jobs(jobs, running=claimed[:1])
    assert due.job == claimed[1]
    [due] = await claim_jobs(jobs, THERE, running=claimed[1:])
    assert due.job == claimed[0]


@rule("CV-19")
async def test_only_named_jobs_of_the_owner_are_renewed(store: Store, jobs: ExecutionStore) -> None:
    for name in ("lost", "stolen"):
        await create_canvas(store, POLL, name=name)
    await advance_clock(store, EVERY)
    by_name = {due.canvas_id: due for due in await claim_jobs(jobs)}
    await advance_clock(store, LEASE + 1)
    [stolen] = await claim_jobs(jobs, THERE, running=[by_name[CanvasId(name)].job for name in (NAME, "lost")])
    await jobs.renew_refreshes(HERE, [by_name[NAME].job, stolen.job], LEASE * 3)
    await advance_clock(store, LEASE + 1)
    assert {due.canvas_id for due in await claim_jobs(jobs)} == {"lost", "stolen"}
    await jobs.renew_refreshes(THERE, [], LEASE)
    await jobs.finish_refresh(THERE, by_name[NAME], failures=0, delay=0)
    assert await claim_jobs(jobs) == [], "only the owner finishes a job"


@rule("CV-19")
async def test_watched_job_is_not_due_without_a_view(store: Store, jobs: ExecutionStore) -> None:
    await create_canvas(store, POLL, WATCH, name="other")
    await advance_clock(store, EVERY)
    found = {due.job for due in await claim_jobs(jobs)}
    assert found == {(OWNER, NAME, "poll"), (OWNER, "other", "poll")}
    assert await jobs.next_refresh(unwatched=True) is None
    view = View("view_2", "browser", "con_2")
    opened = Change(events=[EVENTS.view_opened(1, view, 1)], is_mutation=False, opened=view)
    await store.database.canvases.change(OWNER, CanvasId("other"), lambda _: opened, seconds=LEASE)
    assert (await jobs.next_refresh(unwatched=True) or 0) < 0
    [due] = await claim_jobs(jobs)
    assert due.job == (OWNER, "other", "watch")


@rule("CV-19")
async def test_no_job_is_due_without_a_view_where_unwatched_jobs_are_off(
    store: Store, jobs: ExecutionStore
) -> None:
    await store.add_user("ann")
    await create_canvas(store, POLL, user=AccountId("ann"))
    await advance_clock(store, EVERY)
    assert (await claim_jobs(jobs, unwatched=False), await jobs.next_refresh(unwatched=False)) == ([], None)
    await open_view(store, seconds=0)
    assert (await claim_jobs(jobs, unwatched=False), await jobs.next_refresh(unwatched=False)) == (
        [],
        None,
    ), "that view has expired"
    await store.sql(f"update canvas_views set expires_at = {store.ago(-60)}")
    assert (await jobs.next_refresh(unwatched=False) or 0) < 0
    [due] = await claim_jobs(jobs, unwatched=False)
    assert due.account_id == OWNER, "a view of another user's canvas of the same id does not count"


async def test_unchanged_job_keeps_its_due_time_under_a_new_spec(store: Store) -> None:
    async def new_spec(*refreshes: Refresh) -> Any:
        change = Change(events=[EVENTS.updated(2, [""])], spec={}, refreshes=list(refreshes))
        assert await store.database.canvases.change(OWNER, NAME, lambda _: change) is not None
        return [
            tuple(row.values())
            for row in await store.sql("select refresh_id, only_watched, next_at from canvas_refreshes")
        ]

    [(_, _, before)] = await new_spec(POLL)
    [(_, _, after)] = await new_spec(POLL)
    assert after == before
    [(_, only_watched, next_at)] = await new_spec(
        Refresh("poll", 60_000, "look", is_enabled=True, only_watched=True)
    )
    assert (bool(only_watched), next_at > before) == (True, True)
