"""The stories of canvases beside what the edges show: blobs that nobody speaks of, views whose instance died."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import pytest_asyncio

from easel.core.canvas.spec import SpecLimits
from easel.core.principal import THE_OWNER
from easel.errors import BadInput, CorruptData, NotFound, RevisionConflict, TooLarge, Unavailable
from easel.host.canvases.assets import AssetLimits, CanvasAssets
from easel.host.canvases.library import CanvasLibrary, Draft
from easel.host.canvases.transactions import CanvasTransactions
from easel.host.canvases.views import NO_CONNECTION, CanvasViews
from easel.host.tools.native import native_tools
from easel.host.tools.registry import ToolRegistry
from easel.stores.blobs.store import open_blobs
from tests.requirements import rule
from tests.support.waiting import TIMEOUT_SECONDS

if TYPE_CHECKING:
    from tests.host.conftest import Bench, TurnableClock

VIEW_SECONDS = 60.0


class Studio:
    """The stories of canvases around one store. Several may share it, as instances do."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        store, self.blobs = bench.database.canvases, open_blobs(str(bench.database.path.parent / "blobs"))
        self.changes = changes = CanvasTransactions(store, self.blobs, bench.database.notifier)
        self.assets = CanvasAssets(store, changes, self.blobs, AssetLimits(1_000, 3))
        self.library = CanvasLibrary(
            store,
            changes,
            self.assets,
            bench.artifacts,
            ToolRegistry(native_tools(), audit=bench.audit, timeout_seconds=5, max_result_bytes=10_000),
            notifier=bench.database.notifier,
            audit=bench.audit,
            limits=SpecLimits(state_bytes=2_000),
        )
        self.views = CanvasViews(store, changes, view_ttl_seconds=VIEW_SECONDS)

    async def keys(self) -> list[str]:
        return sorted([key async for key in self.blobs.list("users")])

    async def log(self, canvas_id: str = "c") -> list[tuple[str, dict[str, Any]]]:
        events = await self.bench.database.canvases.events_after(f"owner/{canvas_id}", 0, 100)
        return [(event.type, msgspec.json.decode(event.data)) for event in events]


@pytest_asyncio.fixture
async def studio(bench: Bench) -> Studio:
    studio = Studio(bench)
    await studio.library.create(THE_OWNER, Draft(canvas_id="c"))
    return studio


@rule("CV-35")
async def test_views_of_an_instance_that_died_run_out_and_another_one_tells_so(
    studio: Studio, bench: Bench, clock: TurnableClock
) -> None:
    dead, alive = studio.views, Studio(bench).views
    await dead.open(THE_OWNER, "c", "browser", "con_dead")
    mine, _ = await alive.open(THE_OWNER, "c", "phone", "con_alive")
    closed = 0
    for _ in range(3):
        clock.ahead += VIEW_SECONDS / 3 + 1
        closed += await alive.once()
    assert closed == 1
    snapshot = await studio.library.get(THE_OWNER, "c")
    assert snapshot.views == [mine]
    kinds = [(kind, data.get("status"), data.get("views")) for kind, data in await studio.log()]
    assert kinds[1:] == [
        ("canvas.view.updated", "opened", 1),
        ("canvas.view.updated", "opened", 2),
        ("canvas.view.updated", "closed", 1),
    ]
    assert await dead.once() == 0, "told once"


@rule("CV-35")
async def test_one_look_at_the_views_that_breaks_is_not_the_last(
    studio: Studio, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = bench.database.canvases
    expired, broken = store.list_expired_views, list[bool]()

    async def breaks_once(limit: int) -> Any:
        if not broken:
            broken.append(True)
            raise RuntimeError("something nobody thought of")
        return await expired(limit)

    monkeypatch.setattr(store, "list_expired_views", breaks_once)
    views = CanvasViews(store, studio.changes, view_ttl_seconds=0.03)
    await views.open(THE_OWNER, "c", "browser", NO_CONNECTION)
    views.start()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while (await studio.library.get(THE_OWNER, "c")).views:  # noqa: ASYNC110 - the store tells nobody
            await asyncio.sleep(0.01)
    assert broken
    await views.stop()


@rule("CV-35")
async def test_who_comes_back_to_another_instance_looks_at_it_once(studio: Studio, bench: Bench) -> None:
    """The instance that died has not run out yet: nobody is counted twice for that. What came on no connection is somebody's own."""
    dead, alive = studio.views, Studio(bench).views
    await dead.open(THE_OWNER, "c", "browser", "con_dead")
    other, _ = await dead.open(THE_OWNER, "c", "phone", "con_other")
    single, _ = await alive.open(THE_OWNER, "c", "browser", NO_CONNECTION)
    back, snapshot = await alive.open(THE_OWNER, "c", "browser", "con_back")
    again, _ = await alive.open(THE_OWNER, "c", "browser", "con_back")
    assert {view.view_id for view in snapshot.live_views} == {other.view_id, single.view_id, back.view_id}
    kinds = [
        (data["status"], data["views"]) for kind, data in await studio.log() if kind == "canvas.view.updated"
    ]
    assert kinds == [("opened", 1), ("opened", 2), ("opened", 3), ("closed", 2), ("opened", 3), ("opened", 4)]
    assert set(await alive.close(THE_OWNER, "c", "con_back", None)) == {back.view_id, again.view_id}


@rule("CV-35")
async def test_a_view_that_is_renewed_while_it_is_swept_stays(studio: Studio, clock: TurnableClock) -> None:
    view, _ = await studio.views.open(THE_OWNER, "c", "browser", "con_1")
    clock.ahead += VIEW_SECONDS + 1
    store = studio.bench.database.canvases
    expired = await store.list_expired_views(10)
    await store.renew_views(["con_1"], VIEW_SECONDS)
    for _, canvas_id, one in expired:
        assert not await studio.views._close(THE_OWNER, canvas_id, one, only_dead=True)
    assert (await studio.library.get(THE_OWNER, "c")).live_views == [view]


async def test_a_connection_leaves_all_its_canvases_and_those_that_are_gone(studio: Studio) -> None:
    await studio.library.create(THE_OWNER, Draft(canvas_id="d"))
    for name in ("c", "d"):
        await studio.views.open(THE_OWNER, name, "browser", "con_1")
    await studio.library.delete(THE_OWNER, "c")
    await studio.views.leave(THE_OWNER, "con_1")
    assert (await studio.library.get(THE_OWNER, "d")).views == []
    assert [data["status"] for kind, data in await studio.log("d") if kind == "canvas.view.updated"] == [
        "opened",
        "closed",
    ]


async def test_a_blob_whose_writer_died_is_swept_once_it_is_old_and_no_asset_ever_is(studio: Studio) -> None:
    await studio.assets.put(THE_OWNER, "c", "assets/a.txt", b"mine", None)
    [stray] = await studio.assets.store(
        THE_OWNER.user_id,
        "main",
        (await studio.library.get(THE_OWNER, "c")).canvas.canvas_id,
        {"assets/b.txt": b"x"},
    )
    assert await studio.assets.sweep() == 0, "its writer may still be about to give it a row"
    assert await studio.assets.sweep(grace_seconds=-1) == 1
    assert stray.blob_key not in await studio.keys()
    assert (await studio.assets.read(THE_OWNER, "c", "assets/a.txt"))[1] == b"mine"


async def test_what_is_refused_leaves_no_blob(studio: Studio) -> None:
    for name in ("a", "b"):
        await studio.assets.put(THE_OWNER, "c", f"assets/{name}", b"x", None)
    with pytest.raises(BadInput, match="upper and lower case"):
        await studio.assets.put(THE_OWNER, "c", "assets/A", b"x", None)
    await studio.assets.put(THE_OWNER, "c", "assets/c", b"x", None)
    kept = await studio.keys()
    assert len(kept) == 3
    with pytest.raises(BadInput, match="at most 3 assets"):
        await studio.assets.put(THE_OWNER, "c", "assets/d", b"x", None)
    with pytest.raises(RevisionConflict):
        await studio.assets.put(THE_OWNER, "c", "assets/a", b"y", 1)
    with pytest.raises(TooLarge):
        await studio.assets.put(THE_OWNER, "c", "assets/a", b"x" * 1_001, None)
    with pytest.raises(NotFound):
        await studio.assets.put(THE_OWNER, "none", "assets/a", b"x", None)
    with pytest.raises(BadInput, match="at most 3 assets"):
        await studio.library.create(
            THE_OWNER, Draft(canvas_id="e", assets={f"assets/{n}": b"x" for n in range(4)})
        )
    assert await studio.keys() == kept


async def test_a_lost_blob_is_told_as_damage_and_never_as_other_bytes(studio: Studio) -> None:
    asset, _ = await studio.assets.put(THE_OWNER, "c", "assets/a", b"abc", None)
    await studio.blobs.delete(asset.blob_key)
    with pytest.raises(CorruptData):
        await studio.assets.read(THE_OWNER, "c", "assets/a")
    await studio.blobs.put(asset.blob_key, b"other bytes")
    with pytest.raises(CorruptData):
        await studio.assets.read(THE_OWNER, "c", "assets/a")
    await studio.assets.put(THE_OWNER, "c", "assets/a", b"again", None)
    assert (await studio.assets.read(THE_OWNER, "c", "assets/a"))[1] == b"again"


async def test_a_blob_store_that_is_away_changes_nothing(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object, **__: object) -> int:
        raise Unavailable(what="The blob store")

    before = await studio.library.get(THE_OWNER, "c")
    monkeypatch.setattr(studio.blobs, "put", away)
    with pytest.raises(Unavailable):
        await studio.assets.put(THE_OWNER, "c", "assets/a", b"x", None)
    with pytest.raises(Unavailable):
        await studio.library.upsert(THE_OWNER, Draft(canvas_id="c", assets={"assets/a": b"x"}))
    assert await studio.library.get(THE_OWNER, "c") == before


async def test_a_state_over_the_limit_is_refused_by_every_way_in(studio: Studio) -> None:
    big = {"text": "x y " * 600}
    with pytest.raises(TooLarge):
        await studio.library.create(THE_OWNER, Draft(canvas_id="e", state=big))
    with pytest.raises(TooLarge):
        await studio.library.upsert(THE_OWNER, Draft(canvas_id="c", state=big))
    with pytest.raises(TooLarge):
        await studio.library.create(THE_OWNER, Draft(canvas_id="e", spec={"state": big}))
    patch = [
        {"op": "add", "path": "/text", "value": "x y " * 400},
        {"op": "add", "path": "/more", "value": "x y " * 400},
    ]
    with pytest.raises(TooLarge):
        await studio.library.patch(
            THE_OWNER, "c", state_patch=patch, spec=None, title=None, expected_revision=None
        )


@pytest.mark.parametrize(
    "key",
    [
        "agent:main",
        "main",
        "agent::x",
        "agent:main:",
        "agent:a b:c",
        "agent:main:" + "x" * 300,
        "user:main:x",
    ],
)
async def test_an_owner_session_key_is_of_an_agent_s_session(studio: Studio, key: str) -> None:
    with pytest.raises(BadInput, match="ownerSessionKey"):
        await studio.library.create(THE_OWNER, Draft(canvas_id="e", owner_session_key=key))
    made = await studio.library.create(THE_OWNER, Draft(canvas_id="e", owner_session_key="agent:main:work"))
    assert made.canvas.session_key == "agent:main:work"
