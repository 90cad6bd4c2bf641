"""Logs of canvases on every store are trimmed from the start; new events and the last event are kept."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from easel.core.canvas.canvas import Change, NewCanvas
from easel.core.canvas.events import CanvasEvents
from easel.core.canvas.retention import START
from easel.host.canvases import log_retention as canvas_logs
from easel.host.canvases.log_retention import CanvasLogRetention
from easel.ids import OWNER, AccountId, CanvasId, scoped_key
from tests.requirements import rule

if TYPE_CHECKING:
    from easel.core.canvas.canvas import CanvasSnapshot
    from easel.host.ports import CanvasStore
    from tests.stores.harness import Store

DAY = 86_400.0


@pytest.fixture
def canvases(store: Store) -> CanvasStore:
    return store.database.canvases


async def create_canvas_with_log(
    canvases: CanvasStore, name: str, events: int, user: AccountId = OWNER
) -> None:
    """Create a canvas whose log has this many events."""
    canvas_id = CanvasId(name)
    canvas_events = CanvasEvents(canvas_id, agent_id="main", event_id="evt_1")
    await canvases.create(
        NewCanvas(account_id=user, canvas_id=canvas_id, agent_id="main", title="T", spec={}, state={}),
        canvas_events.created(1, "T"),
    )

    def add_events(snapshot: CanvasSnapshot) -> Change:
        return Change(
            events=[
                canvas_events.updated(snapshot.canvas.revision + 1, ["/n"])
                for _ in range(min(100, remaining))
            ],
            state={"n": remaining},
        )

    remaining = events - 1
    while remaining:
        await canvases.change(user, canvas_id, add_events)
        remaining -= min(100, remaining)


async def set_event_age(store: Store, name: str, up_to: int, seconds: float = 2 * DAY) -> None:
    """Set the age of the events up to this one."""
    await store.sql(
        f"update canvas_events set created_at = {store.ago(seconds)}"
        f" where canvas_id = '{name}' and seq <= {up_to}"
    )


async def read_bounds(canvases: CanvasStore, name: str, user: AccountId = OWNER) -> tuple[int, int]:
    """Return the events of the log, and check its bounds."""
    bounds = await canvases.bounds(user, name)
    assert bounds is not None
    seen = [event.seq for event in await canvases.events_after(scoped_key(user, name), 0, 10_000)]
    assert seen == list(range(bounds.oldest, bounds.newest + 1))
    return bounds.oldest, bounds.newest


@rule("RX-36")
async def test_old_events_are_trimmed_and_the_canvas_is_unchanged(
    store: Store, canvases: CanvasStore
) -> None:
    await create_canvas_with_log(canvases, "c", 10)
    await set_event_age(store, "c", 6)
    before = await canvases.get(OWNER, CanvasId("c"))
    assert await CanvasLogRetention(canvases, DAY).once() == 6
    assert await read_bounds(canvases, "c") == (7, 10)
    assert await canvases.get(OWNER, CanvasId("c")) == before
    assert await CanvasLogRetention(canvases, DAY).once() == 0


async def test_last_event_is_kept_and_the_log_continues_after_it(store: Store, canvases: CanvasStore) -> None:
    await create_canvas_with_log(canvases, "c", 5)
    await set_event_age(store, "c", 5)
    assert await CanvasLogRetention(canvases, DAY).once() == 4
    assert await read_bounds(canvases, "c") == (5, 5)
    canvas_events = CanvasEvents(CanvasId("c"), agent_id="main", event_id="evt_1")
    await canvases.change(
        OWNER,
        CanvasId("c"),
        lambda snapshot: Change(events=[canvas_events.updated(snapshot.canvas.revision + 1, ["/n"])]),
    )
    assert await CanvasLogRetention(canvases, DAY).once() == 1
    assert await read_bounds(canvases, "c") == (6, 6)


async def test_old_event_after_a_new_one_is_kept(store: Store, canvases: CanvasStore) -> None:
    """A clock may be set back; the log must have no gap."""
    await create_canvas_with_log(canvases, "c", 6)
    await set_event_age(store, "c", 5)
    await store.sql(f"update canvas_events set created_at = {store.ago(0)} where canvas_id = 'c' and seq = 3")
    assert await CanvasLogRetention(canvases, DAY).once() == 2
    assert await read_bounds(canvases, "c") == (3, 6)


async def test_long_logs_of_all_users_are_trimmed_in_batches(
    store: Store, canvases: CanvasStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(canvas_logs, "CANVAS_BATCH_SIZE", 2)
    monkeypatch.setattr(canvas_logs, "EVENT_BATCH_SIZE", 7)
    ann = await store.add_user("ann")
    for name in ("a", "b", "young", "z"):
        await create_canvas_with_log(canvases, name, 30)
    await create_canvas_with_log(canvases, "b", 30, ann)
    for name in ("a", "b", "z"):
        await set_event_age(store, name, 29)
    assert await canvases.trim_log(OWNER, CanvasId("a"), DAY, 7) == 7
    assert await read_bounds(canvases, "a") == (8, 30)
    assert await CanvasLogRetention(canvases, DAY).once() == 22 + 29 + 29 + 29
    assert [await read_bounds(canvases, name) for name in ("a", "b", "z", "young")] == [
        (30, 30),
        (30, 30),
        (30, 30),
        (1, 30),
    ]
    assert await read_bounds(canvases, "b", ann) == (30, 30)


async def test_old_logs_are_found_page_by_page(store: Store, canvases: CanvasStore) -> None:
    for name in ("a", "b", "c"):
        await create_canvas_with_log(canvases, name, 2)
    await set_event_age(store, "b", 1)
    first = await canvases.find_old_logs(DAY, START, 2)
    assert (list(first.keys), first.next) == ([(OWNER, "b")], (OWNER, "b"))
    assert first.next is not None
    rest = await canvases.find_old_logs(DAY, first.next, 2)
    assert (list(rest.keys), rest.next) == ([], None)


async def test_concurrent_trims_and_appends_leave_no_gap(store: Store, canvases: CanvasStore) -> None:
    await create_canvas_with_log(canvases, "c", 200)
    await set_event_age(store, "c", 150)
    canvas_events = CanvasEvents(CanvasId("c"), agent_id="main", event_id="evt_1")

    async def grow() -> None:
        for _ in range(20):
            await canvases.change(
                OWNER,
                CanvasId("c"),
                lambda snapshot: Change(events=[canvas_events.updated(snapshot.canvas.revision + 1, ["/n"])]),
            )

    async def shorten() -> int:
        dropped = 0
        while step := await canvases.trim_log(OWNER, CanvasId("c"), DAY, 10):
            dropped += step
        return dropped

    _, one, other = await asyncio.gather(grow(), shorten(), shorten())
    assert one + other == 150
    assert await read_bounds(canvases, "c") == (151, 220)


async def test_trim_of_a_deleted_canvas_returns_zero(canvases: CanvasStore) -> None:
    assert await canvases.trim_log(OWNER, CanvasId("none"), DAY, 10) == 0
