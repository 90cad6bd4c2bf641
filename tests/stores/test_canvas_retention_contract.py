"""The logs of canvases on every store, shortened from the oldest end: what is young stays, the last event stays, and nothing has a hole."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from easel.core.canvas.canvas import Change, NewCanvas
from easel.core.canvas.events import CanvasEvents
from easel.core.canvas.retention import START
from easel.host.canvases import log_retention as canvas_logs
from easel.host.canvases.log_retention import CanvasLogRetention
from easel.ids import OWNER, CanvasId, UserId, scoped_key
from tests.requirements import rule

if TYPE_CHECKING:
    from easel.core.canvas.canvas import CanvasSnapshot
    from easel.host.ports import CanvasStore
    from tests.stores.harness import Store

DAY = 86_400.0


@pytest.fixture
def canvases(store: Store) -> CanvasStore:
    return store.database.canvases


async def grown(canvases: CanvasStore, name: str, events: int, user: UserId = OWNER) -> None:
    """A canvas whose log has so many events."""
    canvas_id = CanvasId(name)
    told = CanvasEvents(canvas_id, agent_id="main", event_id="evt_1")
    await canvases.create(
        NewCanvas(user_id=user, canvas_id=canvas_id, agent_id="main", title="T", spec={}, state={}),
        told.created(1, "T"),
    )

    def more(snapshot: CanvasSnapshot) -> Change:
        return Change(
            events=[told.updated(snapshot.canvas.revision + 1, ["/n"]) for _ in range(min(100, left))],
            state={"n": left},
        )

    left = events - 1
    while left:
        await canvases.change(user, canvas_id, more)
        left -= min(100, left)


async def aged(store: Store, name: str, up_to: int, seconds: float = 2 * DAY) -> None:
    """The events up to this one happened so long ago."""
    await store.sql(
        f"update canvas_events set created_at = {store.ago(seconds)} where canvas_id = '{name}' and seq <= {up_to}"
    )


async def held(canvases: CanvasStore, name: str, user: UserId = OWNER) -> tuple[int, int]:
    """What the log holds, which is what it says that it holds."""
    bounds = await canvases.bounds(user, name)
    assert bounds is not None
    seen = [event.seq for event in await canvases.events_after(scoped_key(user, name), 0, 10_000)]
    assert seen == list(range(bounds.oldest, bounds.newest + 1))
    return bounds.oldest, bounds.newest


@rule("RX-36")
async def test_what_is_old_goes_from_the_beginning_and_the_canvas_stays_as_it_is(
    store: Store, canvases: CanvasStore
) -> None:
    await grown(canvases, "c", 10)
    await aged(store, "c", 6)
    before = await canvases.get(OWNER, CanvasId("c"))
    assert await CanvasLogRetention(canvases, DAY).once() == 6
    assert await held(canvases, "c") == (7, 10)
    assert await canvases.get(OWNER, CanvasId("c")) == before
    assert await CanvasLogRetention(canvases, DAY).once() == 0


async def test_the_last_event_stays_however_old_it_is_and_the_log_grows_on_behind_it(
    store: Store, canvases: CanvasStore
) -> None:
    await grown(canvases, "c", 5)
    await aged(store, "c", 5)
    assert await CanvasLogRetention(canvases, DAY).once() == 4
    assert await held(canvases, "c") == (5, 5)
    told = CanvasEvents(CanvasId("c"), agent_id="main", event_id="evt_1")
    await canvases.change(
        OWNER,
        CanvasId("c"),
        lambda snapshot: Change(events=[told.updated(snapshot.canvas.revision + 1, ["/n"])]),
    )
    assert await CanvasLogRetention(canvases, DAY).once() == 1
    assert await held(canvases, "c") == (6, 6)


async def test_an_old_event_behind_a_young_one_stays_with_it(store: Store, canvases: CanvasStore) -> None:
    """Clocks go back at times; a log has no hole."""
    await grown(canvases, "c", 6)
    await aged(store, "c", 5)
    await store.sql(f"update canvas_events set created_at = {store.ago(0)} where canvas_id = 'c' and seq = 3")
    assert await CanvasLogRetention(canvases, DAY).once() == 2
    assert await held(canvases, "c") == (3, 6)


async def test_a_long_log_goes_in_pieces_and_every_canvas_of_every_user_is_looked_at(
    store: Store, canvases: CanvasStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(canvas_logs, "CANVAS_BATCH_SIZE", 2)
    monkeypatch.setattr(canvas_logs, "EVENT_BATCH_SIZE", 7)
    ann = await store.add_user("ann")
    for name in ("a", "b", "young", "z"):
        await grown(canvases, name, 30)
    await grown(canvases, "b", 30, ann)
    for name in ("a", "b", "z"):
        await aged(store, name, 29)
    assert await canvases.trim_log(OWNER, CanvasId("a"), DAY, 7) == 7
    assert await held(canvases, "a") == (8, 30)
    assert await CanvasLogRetention(canvases, DAY).once() == 22 + 29 + 29 + 29
    assert [await held(canvases, name) for name in ("a", "b", "z", "young")] == [
        (30, 30),
        (30, 30),
        (30, 30),
        (1, 30),
    ]
    assert await held(canvases, "b", ann) == (30, 30)


async def test_a_look_names_what_begins_old_and_where_to_go_on(store: Store, canvases: CanvasStore) -> None:
    for name in ("a", "b", "c"):
        await grown(canvases, name, 2)
    await aged(store, "b", 1)
    first = await canvases.find_old_logs(DAY, START, 2)
    assert (list(first.found), first.next) == ([(OWNER, "b")], (OWNER, "b"))
    assert first.next is not None
    rest = await canvases.find_old_logs(DAY, first.next, 2)
    assert (list(rest.found), rest.next) == ([], None)


async def test_it_may_be_shortened_by_two_at_once_while_it_grows(store: Store, canvases: CanvasStore) -> None:
    await grown(canvases, "c", 200)
    await aged(store, "c", 150)
    told = CanvasEvents(CanvasId("c"), agent_id="main", event_id="evt_1")

    async def grow() -> None:
        for _ in range(20):
            await canvases.change(
                OWNER,
                CanvasId("c"),
                lambda snapshot: Change(events=[told.updated(snapshot.canvas.revision + 1, ["/n"])]),
            )

    async def shorten() -> int:
        dropped = 0
        while step := await canvases.trim_log(OWNER, CanvasId("c"), DAY, 10):
            dropped += step
        return dropped

    _, one, other = await asyncio.gather(grow(), shorten(), shorten())
    assert one + other == 150
    assert await held(canvases, "c") == (151, 220)


async def test_a_canvas_that_is_gone_is_no_problem(canvases: CanvasStore) -> None:
    assert await canvases.trim_log(OWNER, CanvasId("none"), DAY, 10) == 0
