"""Refresh jobs on every store: who may take one, for how long it is held, and when it is due again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from easel.core.canvas.canvas import CanvasSnapshot, Change, NewCanvas, View
from easel.core.canvas.events import CanvasEvents
from easel.core.canvas.spec import Refresh
from easel.ids import OWNER, CanvasId, UserId
from tests.requirements import case, rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from easel.core.canvas.refresh import Due, Failing, Job
    from easel.host.ports import CanvasActionStore
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
def jobs(store: Store) -> CanvasActionStore:
    return store.database.canvas_actions


@pytest_asyncio.fixture(autouse=True)
async def cockpit(store: Store) -> None:
    await made(store, POLL)


async def made(store: Store, *refreshes: Refresh, name: str = NAME, user: UserId = OWNER) -> None:
    new = NewCanvas(
        user_id=user,
        canvas_id=CanvasId(name),
        agent_id="main",
        title="Cockpit",
        spec={},
        state={"n": 0},
        refreshes=list(refreshes),
    )
    assert await store.database.canvases.create(new, EVENTS.created(1, "Cockpit")) is not None


async def turn(store: Store, seconds: float) -> None:
    """What was decided lies so much further back; or, with less than nothing, ahead: the clock was set back."""
    if store.kind == "sqlite":
        offloaded = {
            name: f"{name} - {round(seconds * 1_000_000)}"
            for name in ("next_at", "put_off_at", "lease_until")
        }
    else:
        offloaded = {
            name: f"{name} - interval '{seconds} seconds'"
            for name in ("next_at", "put_off_at", "lease_until")
        }
    await store.sql(
        "update canvas_refreshes set " + ", ".join(f"{name} = {then}" for name, then in offloaded.items())
    )


async def taken(
    jobs: CanvasActionStore,
    owner: str = HERE,
    *,
    room: int = 10,
    at_work: Sequence[Job] = (),
    unwatched: bool = True,
) -> list[Due]:
    return await jobs.claim_refreshes(owner, room, LEASE, running=at_work, unwatched=unwatched)


async def looked_at(store: Store, seconds: float = LEASE) -> None:
    view = View("view_1", "browser", "con_1")
    opened = Change(
        events=[EVENTS.view_opened(1, view.view_id, "browser", 1)], is_mutation=False, opened=view
    )
    assert await store.database.canvases.change(OWNER, NAME, lambda _: opened, seconds=seconds) is not None


@rule("CV-19")
async def test_a_job_is_due_an_interval_after_it_was_made_and_again_after_it_was_settled(
    store: Store, jobs: CanvasActionStore
) -> None:
    due_in = await jobs.next_refresh(unwatched=True)
    assert due_in is not None
    assert 0 < due_in <= EVERY
    assert await taken(jobs) == []
    await turn(store, EVERY)
    [due] = await taken(jobs)
    assert (due.job, due.action_id, due.every_ms, due.failures) == ((OWNER, NAME, "poll"), "look", 60_000, 0)
    await jobs.finish_refresh(HERE, due, failures=3, delay=100)
    due_in = await jobs.next_refresh(unwatched=True)
    assert due_in is not None
    assert 90 < due_in <= 100
    await turn(store, 100)
    [due] = await taken(jobs)
    assert due.failures == 3


@rule("RS-45", "CV-51")
async def test_a_job_that_fails_is_read_with_its_canvas_until_it_works_again(
    store: Store, jobs: CanvasActionStore
) -> None:
    await store.add_user("ann")
    await made(store, POLL, WATCH, name="other")
    await made(store, POLL, user=UserId("ann"))
    assert await failing(store) == []
    error = {"code": 503, "name": "UNAVAILABLE", "message": "laptop is “away” \\ \u2028"}
    await turn(store, EVERY)
    due = next(one for one in await taken(jobs) if one.job == (OWNER, NAME, "poll"))
    await jobs.finish_refresh(HERE, due, failures=2, delay=100, error=error)
    [job] = await failing(store)
    assert (job.refresh_id, job.action_id, job.failures, job.error) == ("poll", "look", 2, error)
    assert 90 < job.retry_seconds <= 100
    assert (await failing(store, "other"), await failing(store, user=UserId("ann"))) == ([], []), (
        "each canvas has its own"
    )
    await turn(store, 110)
    [job] = await failing(store)
    assert -20 < job.retry_seconds < 0, "it is due"
    [due] = [one for one in await taken(jobs) if one.job == (OWNER, NAME, "poll")]
    assert [one.failures for one in await failing(store)] == [2], "nobody knows yet how it goes this time"
    await jobs.finish_refresh(HERE, due, failures=3, delay=100)
    assert [(one.failures, one.error) for one in await failing(store)] == [(3, None)]
    await turn(store, 100)
    [due] = [one for one in await taken(jobs) if one.job == (OWNER, NAME, "poll")]
    await jobs.finish_refresh(HERE, due, failures=0, delay=100)
    assert await failing(store) == []


async def test_a_job_that_a_new_spec_leaves_out_fails_no_more(store: Store, jobs: CanvasActionStore) -> None:
    await turn(store, EVERY)
    [due] = await taken(jobs)
    await jobs.finish_refresh(HERE, due, failures=1, delay=100, error={"message": "no"})
    seen: list[int] = []

    def respecified(*refreshes: Refresh) -> Any:
        def decide(snapshot: CanvasSnapshot) -> Change:
            seen.append(len(snapshot.failing))
            return Change(events=[EVENTS.updated(2, [""])], spec={}, refreshes=list(refreshes))

        return store.database.canvases.change(OWNER, NAME, decide)

    await respecified(POLL)
    assert len(await failing(store)) == 1, "the same job goes on"
    await respecified()
    assert (await failing(store), seen) == ([], [1, 1]), "whoever changes it sees it, too"


async def failing(store: Store, name: str = NAME, user: UserId = OWNER) -> list[Failing]:
    snapshot = await store.database.canvases.get(user, CanvasId(name))
    assert snapshot is not None
    return list(snapshot.failing)


@rule("CV-19")
@case("X9")
async def test_however_many_ask_at_once_one_gets_it(store: Store, jobs: CanvasActionStore) -> None:
    await turn(store, EVERY)
    found = await asyncio.gather(*(taken(jobs, f"ins_{number}") for number in range(10)))
    assert sorted(map(len, found)) == [0] * 9 + [1]


@case("X9")
async def test_what_is_held_is_not_the_next_to_be_due(store: Store, jobs: CanvasActionStore) -> None:
    await turn(store, EVERY)
    [due] = await taken(jobs)
    assert await jobs.next_refresh(unwatched=True) is None, (
        "else everybody looks again and again for what runs"
    )
    await turn(store, LEASE + 1)
    assert await jobs.next_refresh(unwatched=True) is not None, "whoever held it is gone"
    await jobs.finish_refresh(HERE, due, failures=0, delay=EVERY)
    due_in = await jobs.next_refresh(unwatched=True)
    assert due_in is not None
    assert due_in > 0


@case("X9")
async def test_a_hold_that_ran_out_is_anybody_s_but_not_that_of_whoever_still_runs_it(
    store: Store, jobs: CanvasActionStore
) -> None:
    await made(store, POLL, name="other")
    await turn(store, EVERY)
    held = [due.job for due in await taken(jobs)]
    assert len(held) == 2
    await turn(store, LEASE + 1)
    assert await taken(jobs, at_work=held) == []
    [due] = await taken(jobs, at_work=held[:1])
    assert due.job == held[1]
    [due] = await taken(jobs, THERE, at_work=held[1:])
    assert due.job == held[0]


@rule("CV-19")
async def test_only_what_is_named_is_renewed_and_only_if_nobody_took_it(
    store: Store, jobs: CanvasActionStore
) -> None:
    for name in ("lost", "stolen"):
        await made(store, POLL, name=name)
    await turn(store, EVERY)
    by_name = {due.canvas_id: due for due in await taken(jobs)}
    await turn(store, LEASE + 1)
    [stolen] = await taken(jobs, THERE, at_work=[by_name[CanvasId(name)].job for name in (NAME, "lost")])
    await jobs.renew_refreshes(HERE, [by_name[NAME].job, stolen.job], LEASE * 3)
    await turn(store, LEASE + 1)
    assert {due.canvas_id for due in await taken(jobs)} == {"lost", "stolen"}
    await jobs.renew_refreshes(THERE, [], LEASE)
    await jobs.finish_refresh(THERE, by_name[NAME], failures=0, delay=0)
    assert await taken(jobs) == [], "what another holds is not settled"


@rule("CV-19")
async def test_a_job_for_whoever_looks_rests_while_nobody_does(store: Store, jobs: CanvasActionStore) -> None:
    await made(store, POLL, WATCH, name="other")
    await turn(store, EVERY)
    found = {due.job for due in await taken(jobs)}
    assert found == {(OWNER, NAME, "poll"), (OWNER, "other", "poll")}
    assert await jobs.next_refresh(unwatched=True) is None
    view = View("view_2", "browser", "con_2")
    opened = Change(
        events=[EVENTS.view_opened(1, view.view_id, "browser", 1)], is_mutation=False, opened=view
    )
    await store.database.canvases.change(OWNER, CanvasId("other"), lambda _: opened, seconds=LEASE)
    assert (await jobs.next_refresh(unwatched=True) or 0) < 0
    [due] = await taken(jobs)
    assert due.job == (OWNER, "other", "watch")


@rule("CV-19")
async def test_where_no_job_runs_unwatched_all_rest_that_nobody_looks_at(
    store: Store, jobs: CanvasActionStore
) -> None:
    await store.add_user("ann")
    await made(store, POLL, user=UserId("ann"))
    await turn(store, EVERY)
    assert (await taken(jobs, unwatched=False), await jobs.next_refresh(unwatched=False)) == ([], None)
    await looked_at(store, seconds=0)
    assert (await taken(jobs, unwatched=False), await jobs.next_refresh(unwatched=False)) == ([], None), (
        "that view has run out"
    )
    await store.sql(f"update canvas_views set expires_at = {store.ago(-60)}")
    assert (await jobs.next_refresh(unwatched=False) or 0) < 0
    [due] = await taken(jobs, unwatched=False)
    assert due.user_id == OWNER, "who looks at their own canvas wakes nobody else's of that name"


async def test_a_new_spec_keeps_a_job_that_it_says_the_same_of(store: Store) -> None:
    async def respecified(*refreshes: Refresh) -> Any:
        change = Change(events=[EVENTS.updated(2, [""])], spec={}, refreshes=list(refreshes))
        assert await store.database.canvases.change(OWNER, NAME, lambda _: change) is not None
        return [
            tuple(row.values())
            for row in await store.sql("select refresh_id, only_watched, put_off_at from canvas_refreshes")
        ]

    [(_, _, before)] = await respecified(POLL)
    [(_, _, after)] = await respecified(POLL)
    assert after == before
    [(_, only_watched, put_off)] = await respecified(
        Refresh("poll", 60_000, "look", is_enabled=True, only_watched=True)
    )
    assert (bool(only_watched), put_off > before) == (True, True)
