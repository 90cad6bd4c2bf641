"""Canvases on every store: a change is decided under the lock and stored with its event."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.canvas.assets import Asset
from easel.core.canvas.canvas import Canvas, CanvasSnapshot, Change, NewCanvas, View, check_revision
from easel.core.canvas.events import CanvasEvents
from easel.errors import RevisionConflict
from easel.ids import OWNER, AccountId, CanvasId
from tests.requirements import case, rule
from tests.stores.harness import (
    CONSTRAINT_ERRORS,
    Store,
    answered_or_blocked,
    decode_payload,
    other_connection,
)
from tests.stores.test_artifacts_contract import ON_POSTGRES

if TYPE_CHECKING:
    from easel.core.canvas.canvas import Outcome
    from easel.host.ports import CanvasStore

NAME = CanvasId("cockpit")
EVENTS = CanvasEvents(NAME, agent_id="owner", event_id="evt_1")


@pytest.fixture
def canvases(store: Store) -> CanvasStore:
    return store.database.canvases


async def create_canvas(canvases: CanvasStore, name: str = NAME, **changed: Any) -> CanvasSnapshot:
    new = {
        "account_id": OWNER,
        "canvas_id": CanvasId(name),
        "agent_id": "main",
        "title": "Cockpit",
        "spec": {},
        "state": {"n": 0},
        **changed,
    }
    snapshot = await canvases.create(NewCanvas(**new), EVENTS.created(1, "Cockpit"))
    assert snapshot is not None
    return snapshot


def set_state(**state: Any) -> Any:
    """Return a decision that sets these members of the state."""

    def decide(snapshot: CanvasSnapshot) -> Change:
        canvas = snapshot.canvas
        return Change(
            events=[EVENTS.updated(canvas.revision + 1, [f"/{name}" for name in state])],
            state={**canvas.state, **state},
        )

    return decide


async def change(canvases: CanvasStore, decide: Any, **how: Any) -> Outcome:
    outcome = await canvases.change(OWNER, NAME, decide, **how)
    assert outcome is not None
    return outcome


async def get_canvas(canvases: CanvasStore, name: str = NAME) -> CanvasSnapshot:
    snapshot = await canvases.get(OWNER, CanvasId(name))
    assert snapshot is not None
    return snapshot


@rule("CV-14", "CV-15", "RS-09")
async def test_outcome_of_a_change_equals_the_stored_canvas(canvases: CanvasStore) -> None:
    first = await create_canvas(
        canvases,
        owner_session_key="agent:main:work",
        assets=[Asset("assets/b", "key/b", 1), Asset("assets/a", "key/a", 2)],
    )
    assert await get_canvas(canvases) == first
    assert (first.canvas.revision, first.canvas.last_seq) == (1, 1)
    assert first.canvas.created_at == first.canvas.updated_at
    assert first.canvas.session_key == "agent:main:work"
    for decide in (
        set_state(a=[1, None, {"b": "ü"}]),
        lambda _: Change(
            events=[EVENTS.updated(3, ["$spec"])],
            spec={"version": 1},
            title="New",
            owner_session_key="agent:main:x",
        ),
        lambda _: Change(
            events=[EVENTS.updated(4, ["$assets/a"])],
            put=[Asset("assets/a", "key/a2", 3)],
            removed=["assets/b"],
        ),
    ):
        before = await get_canvas(canvases)
        outcome = await change(canvases, decide)
        after = await get_canvas(canvases)
        assert (outcome.snapshot, outcome.snapshot.canvas.spec) == (after, after.canvas.spec)
        assert (after.canvas.revision, after.canvas.last_seq) == (
            before.canvas.revision + 1,
            before.canvas.last_seq + 1,
        )
        assert after.canvas.created_at == first.canvas.created_at
        assert after.canvas.updated_at - before.canvas.updated_at >= timedelta(milliseconds=1)
    assert outcome.orphaned_blobs == []  # a version has them
    assert (after.canvas.title, after.canvas.session_key, after.assets) == (
        "New",
        "agent:main:x",
        [Asset("assets/a", "key/a2", 3)],
    )


@rule("CV-44")
@case("C11")
async def test_concurrent_changes_are_all_stored_without_a_revision_gap(canvases: CanvasStore) -> None:
    await create_canvas(canvases)
    outcomes = await asyncio.gather(*(change(canvases, set_state(**{f"k{n}": n})) for n in range(50)))
    assert sorted(outcome.snapshot.canvas.revision for outcome in outcomes) == list(range(2, 52))
    snapshot = await get_canvas(canvases)
    assert snapshot.canvas.state == {"n": 0, **{f"k{n}": n for n in range(50)}}
    events = await canvases.events_after("owner/cockpit", 0, 1_000)
    assert [event.seq for event in events] == list(range(1, 52))
    assert [decode_payload(event)["revision"] for event in events] == list(range(1, 52)), (
        "the log has them in the order of the commits"
    )


@rule("CV-45")
async def test_change_refused_by_decide_stores_nothing(canvases: CanvasStore, store: Store) -> None:
    before = await create_canvas(canvases)

    def decide(snapshot: CanvasSnapshot) -> Change:
        check_revision(snapshot.canvas, 7)
        raise AssertionError("it was expected")

    with pytest.raises(RevisionConflict) as conflict:
        await canvases.change(OWNER, NAME, decide)
    assert conflict.value.details["currentRevision"] == 1
    with pytest.raises(RevisionConflict):
        await canvases.delete(OWNER, NAME, decide)
    assert await get_canvas(canvases) == before
    assert len(await store.sql("select * from canvas_events")) == 1


async def test_change_without_effect_stores_no_event_and_missing_canvas_returns_none(
    canvases: CanvasStore,
) -> None:
    before = await create_canvas(canvases)
    outcome = await change(canvases, lambda _: None)
    assert (outcome.is_changed, outcome.snapshot) == (False, before)
    assert await canvases.change(OWNER, CanvasId("none"), set_state(a=1)) is None
    assert await canvases.change(AccountId("ann"), NAME, set_state(a=1)) is None
    assert await canvases.delete(AccountId("ann"), NAME, lambda _: None) is None
    assert await canvases.get(AccountId("ann"), NAME) is None
    assert (
        await canvases.create(
            NewCanvas(account_id=OWNER, canvas_id=NAME, agent_id="x", title="", spec={}, state={}),
            EVENTS.created(1, ""),
        )
        is None
    )
    assert await get_canvas(canvases) == before


@rule("CV-33")
async def test_canvases_are_listed_by_agent_and_sorted_by_id(canvases: CanvasStore) -> None:
    for name, agent in (("b", "one"), ("a", "one"), ("B", "two"), ("c", "one")):
        await create_canvas(canvases, name, agent_id=agent, spec={"mode": "markdown"}, state={"heavy": "x"})

    async def listed(agent: str | None, after: str = "", limit: int = 10) -> list[Canvas]:
        return await canvases.list_canvases(OWNER, agent_id=agent, after=after, limit=limit)

    assert [canvas.canvas_id for canvas in await listed("one")] == ["a", "b", "c"]
    assert [canvas.canvas_id for canvas in await listed(None)] == ["B", "a", "b", "c"], (
        "the same order on every store"
    )
    assert [canvas.canvas_id for canvas in await listed("one", "a", 1)] == ["b"]
    assert await listed("none") == []
    assert await canvases.list_canvases(AccountId("ann"), agent_id=None, after="", limit=10) == []
    assert [canvas.spec for canvas in await listed("two")] == [{"mode": "markdown"}]


@rule("RS-67", "CV-33")
async def test_canvases_are_found_by_offset_counted_up_to_a_limit_and_name_their_agent(
    canvases: CanvasStore,
) -> None:
    for name, agent in (("b", "one"), ("a", "one"), ("B", "two"), ("c", "one"), ("gone", "one")):
        await create_canvas(canvases, name, agent_id=agent)
    await canvases.delete(OWNER, CanvasId("gone"), lambda _: None)
    found = [await canvases.find_at(OWNER, agent_id=None, offset=offset) for offset in range(5)]
    assert found == ["B", "a", "b", "c", None], "in the order of the list, without deleted ones"
    found = [await canvases.find_at(OWNER, agent_id="one", offset=offset) for offset in range(4)]
    assert found == ["a", "b", "c", None]
    counts = [await canvases.count(OWNER, agent_id=agent, limit=9) for agent in (None, "one", "two", "none")]
    assert counts == [4, 3, 1, 0]
    assert await canvases.count(OWNER, agent_id=None, limit=2) == 2
    assert await canvases.count(AccountId("ann"), agent_id=None, limit=9) == 0
    agents = [await canvases.get_agent(OWNER, CanvasId(name)) for name in ("a", "B", "gone", "none")]
    assert agents == ["one", "two", None, None]
    assert await canvases.get_agent(AccountId("ann"), CanvasId("a")) is None


@rule("CV-34")
async def test_deleted_canvas_returns_its_blob_keys_and_deletes_everything_else(
    canvases: CanvasStore, store: Store
) -> None:
    await create_canvas(canvases, assets=[Asset("assets/a", "key/a", 1)])
    await change(
        canvases,
        lambda _: Change(
            events=[EVENTS.view_opened(1, View("view_1", "c", "con"), 1)],
            is_mutation=False,
            opened=View("view_1", "c", "con"),
        ),
        seconds=9,
    )
    assert await canvases.delete(OWNER, NAME, lambda _: None) == ["key/a"]
    await store.purge()
    for table in ("canvases", "canvas_events", "canvas_assets", "canvas_views"):
        assert await store.sql(f"select * from {table}") == [], table
    assert await canvases.delete(OWNER, NAME, lambda _: None) is None


@ON_POSTGRES
@rule("RS-34")
async def test_canvas_created_during_its_deletion_continues_after_its_log(
    canvases: CanvasStore, store: Store
) -> None:
    await create_canvas(canvases)
    new = NewCanvas(
        account_id=OWNER, canvas_id=NAME, agent_id="main", title="Cockpit", spec={}, state={}, refreshes=[]
    )
    event = EVENTS.created(1, "Cockpit")
    async with other_connection(store) as other:
        async with other.transaction():
            await other.execute(
                f"insert into ended_canvases (account_id, canvas_id, last_seq) values ('owner', '{NAME}', 50)"
            )
            await other.execute("delete from canvases")
            creating = asyncio.create_task(canvases.create(new, event))
            await answered_or_blocked(creating, other)
        created = await creating
    created = created or await canvases.create(new, event)  # refused while the former one existed
    assert created is not None
    assert created.canvas.last_seq == 51
    assert [event.seq for event in await canvases.events_after(f"{OWNER}/{NAME}", 50, 10)] == [51]


async def test_two_assets_cannot_share_a_blob(canvases: CanvasStore) -> None:
    await create_canvas(canvases, assets=[Asset("assets/a", "key/a", 1)])
    with pytest.raises(CONSTRAINT_ERRORS):
        await create_canvas(canvases, "other", assets=[Asset("assets/a", "key/a", 1)])
    assert await canvases.get(OWNER, CanvasId("other")) is None


async def test_old_blob_without_an_asset_is_reported_as_unknown(canvases: CanvasStore) -> None:
    await create_canvas(canvases, assets=[Asset("assets/a", "key/a", 1)])
    now = datetime.now(UTC)
    keys = {"key/a": now - timedelta(days=1), "key/old": now - timedelta(days=1), "key/new": now}
    assert await canvases.find_unknown_assets(keys, 3_600) == ["key/old"]


@rule("CV-35")
async def test_view_expires_by_the_database_clock_unless_renewed(canvases: CanvasStore, store: Store) -> None:
    await create_canvas(canvases)
    for n, connection in ((1, "con_a"), (2, "con_b")):
        view = View(f"view_{n}", "c", connection)
        await change(
            canvases,
            lambda _, view=view: Change(
                events=[EVENTS.view_opened(1, view, 1)], is_mutation=False, opened=view
            ),
            seconds=60,
        )
    snapshot = await get_canvas(canvases)
    assert [view.view_id for view in snapshot.live_views] == ["view_1", "view_2"]
    assert (snapshot.canvas.revision, snapshot.canvas.last_seq) == (1, 3)
    assert [view.view_id for _, _, view in await canvases.list_views("con_b")] == ["view_2"]
    assert await canvases.list_expired_views(10) == []
    await store.sql(f"update canvas_views set expires_at = {store.ago(1)}")
    assert (await get_canvas(canvases)).live_views == []
    await canvases.renew_views(["con_a"], 60)
    assert [view.view_id for view in (await get_canvas(canvases)).live_views] == ["view_1"]
    assert await canvases.list_expired_views(10) == [(OWNER, NAME, View("view_2", "c", "con_b"))]
    outcome = await change(
        canvases,
        lambda _: Change(
            events=[EVENTS.view_closed(1, View("view_2", "c", "con"), 1)],
            is_mutation=False,
            closed=["view_2"],
        ),
    )
    assert [view.view_id for view in outcome.snapshot.views] == ["view_1"]
    assert await canvases.list_expired_views(10) == []
