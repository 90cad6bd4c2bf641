"""The services of canvases: orphaned blobs, expired views, limits and faults of the blob storage."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from easel.errors import BadInput, CorruptData, NotFound, RevisionConflict, TooLarge, Unavailable
from easel.host.canvases.assets import AssetLimits
from easel.host.canvases.drafts import Draft
from easel.host.canvases.views import NO_CONNECTION, VIEW_TTL_SECONDS, CanvasViews
from easel.ids import UserId
from tests.host.services import HostServices
from tests.requirements import rule
from tests.support.principals import THE_OWNER
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.host.conftest import RunHarness, TurnableClock


async def open_services(harness: RunHarness, **settings: Any) -> HostServices:
    services = await HostServices.open(harness, max_state_bytes=2_000, **settings)
    services.assets._limits = AssetLimits(1_000, 3)
    return services


@pytest_asyncio.fixture
async def services(harness: RunHarness) -> AsyncIterator[HostServices]:
    services = await open_services(harness)
    await services.library.create(THE_OWNER, Draft(canvas_id="c"))
    yield services
    await services.close()


@rule("CV-35")
async def test_views_of_a_crashed_instance_expire_and_another_instance_closes_them(
    services: HostServices, harness: RunHarness, clock: TurnableClock
) -> None:
    crashed, alive = services.views, (await open_services(harness)).views
    await crashed.open(THE_OWNER, "c", "browser", "con_crashed")
    renewed, _ = await alive.open(THE_OWNER, "c", "phone", "con_alive")
    closed = 0
    for _ in range(3):
        clock.ahead += VIEW_TTL_SECONDS / 3 + 1
        closed += await alive.once()
    assert closed == 1
    snapshot = await services.library.get(THE_OWNER, "c")
    assert snapshot.views == [renewed]
    kinds = [(kind, data.get("status"), data.get("views")) for kind, data in await services.log()]
    assert kinds[1:] == [
        ("canvas.view.updated", "opened", 1),
        ("canvas.view.updated", "opened", 2),
        ("canvas.view.updated", "closed", 1),
    ]
    assert await crashed.once() == 0, "closed once"


@rule("CV-35")
async def test_started_service_closes_expired_views(services: HostServices, harness: RunHarness) -> None:
    views = CanvasViews(harness.database.canvases, services.views._transactions, view_ttl_seconds=0.03)
    await views.open(THE_OWNER, "c", "browser", NO_CONNECTION)
    views.periodic.start()

    async def has_no_views() -> bool:
        return not (await services.library.get(THE_OWNER, "c")).views

    await wait_for(has_no_views, what="the expired view is closed")
    await views.periodic.stop()


@rule("CV-35")
async def test_client_that_reconnects_to_another_instance_is_counted_once(
    services: HostServices, harness: RunHarness
) -> None:
    """A view without a connection is not replaced."""
    crashed, alive = services.views, (await open_services(harness)).views
    await crashed.open(THE_OWNER, "c", "browser", "con_crashed")
    other, _ = await crashed.open(THE_OWNER, "c", "phone", "con_other")
    single, _ = await alive.open(THE_OWNER, "c", "browser", NO_CONNECTION)
    reopened, snapshot = await alive.open(THE_OWNER, "c", "browser", "con_back")
    again, _ = await alive.open(THE_OWNER, "c", "browser", "con_back")
    assert {view.view_id for view in snapshot.live_views} == {other.view_id, single.view_id, reopened.view_id}
    kinds = [
        (data["status"], data["views"])
        for kind, data in await services.log()
        if kind == "canvas.view.updated"
    ]
    assert kinds == [("opened", 1), ("opened", 2), ("opened", 3), ("closed", 2), ("opened", 3), ("opened", 4)]
    assert set(await alive.close(THE_OWNER, "c", "con_back", None)) == {reopened.view_id, again.view_id}


@rule("CV-35")
async def test_request_without_a_connection_closes_views_of_its_own_person_only(
    services: HostServices,
) -> None:
    ann, bob = (replace(THE_OWNER, user_id=UserId(name)) for name in ("ann", "bob"))
    view, _ = await services.views.open(ann, "c", "browser", NO_CONNECTION)
    for view_id in (None, view.view_id):
        assert await services.views.close(bob, "c", NO_CONNECTION, view_id) == []
    assert await services.views.close(ann, "c", NO_CONNECTION, view.view_id) == [view.view_id]


@rule("CV-35")
async def test_view_renewed_during_the_check_is_not_closed(
    services: HostServices, clock: TurnableClock
) -> None:
    view, _ = await services.views.open(THE_OWNER, "c", "browser", "con_1")
    clock.ahead += VIEW_TTL_SECONDS + 1
    store = services.harness.database.canvases
    expired = await store.list_expired_views(10)
    await store.renew_views(["con_1"], VIEW_TTL_SECONDS)
    for _, canvas_id, expired_view in expired:
        assert not await services.views._close(THE_OWNER, canvas_id, expired_view, only_expired=True)
    assert (await services.library.get(THE_OWNER, "c")).live_views == [view]


async def test_ended_connection_closes_its_views_and_skips_deleted_canvases(services: HostServices) -> None:
    await services.library.create(THE_OWNER, Draft(canvas_id="d"))
    for name in ("c", "d"):
        await services.views.open(THE_OWNER, name, "browser", "con_1")
    await services.library.delete(THE_OWNER, "c")
    await services.views.close_connection(THE_OWNER, "con_1")
    assert (await services.library.get(THE_OWNER, "d")).views == []
    assert [
        data["status"] for kind, data in await services.log(canvas_id="d") if kind == "canvas.view.updated"
    ] == [
        "opened",
        "closed",
    ]


async def test_old_blob_without_a_row_is_swept_and_assets_are_kept(services: HostServices) -> None:
    await services.assets.put(THE_OWNER, "c", "assets/a.txt", b"mine", None)
    [orphan] = await services.assets.store(
        THE_OWNER.account_id,
        "main",
        (await services.library.get(THE_OWNER, "c")).canvas.canvas_id,
        {"assets/b.txt": b"x"},
    )
    assert await services.assets.sweep() == 0, "its row may be about to be written"
    assert await services.assets.sweep(grace_seconds=-1) == 1
    assert orphan.blob_key not in await services.blob_keys()
    assert (await services.assets.read(THE_OWNER, "c", "assets/a.txt"))[1] == b"mine"


async def test_refused_asset_leaves_no_blob(services: HostServices) -> None:
    for name in ("a", "b"):
        await services.assets.put(THE_OWNER, "c", f"assets/{name}", b"x", None)
    with pytest.raises(BadInput, match="upper and lower case"):
        await services.assets.put(THE_OWNER, "c", "assets/A", b"x", None)
    await services.assets.put(THE_OWNER, "c", "assets/c", b"x", None)
    keys = await services.blob_keys()
    assert len(keys) == 3
    with pytest.raises(BadInput, match="at most 3 assets"):
        await services.assets.put(THE_OWNER, "c", "assets/d", b"x", None)
    with pytest.raises(RevisionConflict):
        await services.assets.put(THE_OWNER, "c", "assets/a", b"y", 1)
    with pytest.raises(TooLarge):
        await services.assets.put(THE_OWNER, "c", "assets/a", b"x" * 1_001, None)
    with pytest.raises(NotFound):
        await services.assets.put(THE_OWNER, "none", "assets/a", b"x", None)
    with pytest.raises(BadInput, match="at most 3 assets"):
        await services.library.create(
            THE_OWNER, Draft(canvas_id="e", assets={f"assets/{n}": b"x" for n in range(4)})
        )
    assert await services.blob_keys() == keys


async def test_upsert_stores_only_assets_that_changed(services: HostServices) -> None:
    page = {"assets/a": b"a", "assets/b": b"b"}
    await services.library.upsert(THE_OWNER, Draft(canvas_id="c", assets=page))
    before = (await services.library.get(THE_OWNER, "c")).assets
    changed = await services.library.upsert(
        THE_OWNER, Draft(canvas_id="c", assets={**page, "assets/b": b"B"})
    )
    assert changed.assets[0] == before[0]
    assert changed.assets[1] != before[1]
    assert (await services.log())[-1][1]["changedPaths"] == ["$assets/b"]
    assert len(await services.blob_keys()) == 3, "one of each content"
    await services.blobs.delete(before[0].blob_key)
    await services.library.upsert(THE_OWNER, Draft(canvas_id="c", assets={**page, "assets/b": b"B"}))
    assert (await services.assets.read(THE_OWNER, "c", "assets/a"))[1] == b"a", "a missing blob is replaced"


async def test_upsert_stores_an_asset_again_that_others_replaced_meanwhile(
    services: HostServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, store = {"assets/a": b"a", "assets/b": b"b"}, services.assets.store
    await services.library.upsert(THE_OWNER, Draft(canvas_id="c", assets=page))

    async def store_and_replace(*args: Any) -> Any:
        stored = await store(*args)
        monkeypatch.undo()
        await services.assets.put(THE_OWNER, "c", "assets/a", b"other", None)
        return stored

    monkeypatch.setattr(services.assets, "store", store_and_replace)
    await services.library.upsert(THE_OWNER, Draft(canvas_id="c", assets={**page, "assets/b": b"B"}))
    assert (await services.assets.read(THE_OWNER, "c", "assets/a"))[1] == b"a"
    assert (await services.assets.read(THE_OWNER, "c", "assets/b"))[1] == b"B"
    assert await services.assets.sweep(grace_seconds=-1) == 0


async def test_missing_or_changed_blob_is_reported_as_corrupt(services: HostServices) -> None:
    asset, _ = await services.assets.put(THE_OWNER, "c", "assets/a", b"abc", None)
    await services.blobs.delete(asset.blob_key)
    with pytest.raises(CorruptData):
        await services.assets.read(THE_OWNER, "c", "assets/a")
    await services.blobs.put(asset.blob_key, b"other bytes")
    with pytest.raises(CorruptData):
        await services.assets.read(THE_OWNER, "c", "assets/a")
    await services.assets.put(THE_OWNER, "c", "assets/a", b"again", None)
    assert (await services.assets.read(THE_OWNER, "c", "assets/a"))[1] == b"again"


async def test_unavailable_blob_storage_changes_nothing(
    services: HostServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> int:
        raise Unavailable(what="The blob store")

    before = await services.library.get(THE_OWNER, "c")
    monkeypatch.setattr(services.blobs, "put", fail)
    with pytest.raises(Unavailable):
        await services.assets.put(THE_OWNER, "c", "assets/a", b"x", None)
    with pytest.raises(Unavailable):
        await services.library.upsert(THE_OWNER, Draft(canvas_id="c", assets={"assets/a": b"x"}))
    assert await services.library.get(THE_OWNER, "c") == before


async def test_oversized_state_is_refused_by_every_method(services: HostServices) -> None:
    big = {"text": "x y " * 600}
    with pytest.raises(TooLarge):
        await services.library.create(THE_OWNER, Draft(canvas_id="e", state=big))
    with pytest.raises(TooLarge):
        await services.library.upsert(THE_OWNER, Draft(canvas_id="c", state=big))
    with pytest.raises(TooLarge):
        await services.library.create(THE_OWNER, Draft(canvas_id="e", spec={"state": big}))
    patch = [
        {"op": "add", "path": "/text", "value": "x y " * 400},
        {"op": "add", "path": "/more", "value": "x y " * 400},
    ]
    with pytest.raises(TooLarge):
        await services.library.patch(
            THE_OWNER, "c", state_patch=patch, spec=None, title=None, expected_revision=None
        )


@pytest.mark.parametrize(
    "key",
    [
        "agent:main",
        "other",
        "agent::x",
        "agent:main:",
        "agent:a b:c",
        "agent:main:" + "x" * 300,
        "user:main:x",
    ],
)
async def test_invalid_owner_session_key_is_refused(services: HostServices, key: str) -> None:
    with pytest.raises(BadInput, match="ownerSessionKey"):
        await services.library.create(THE_OWNER, Draft(canvas_id="e", owner_session_key=key))
    created = await services.library.create(
        THE_OWNER, Draft(canvas_id="e", owner_session_key="agent:main:work")
    )
    assert created.canvas.session_key == "agent:main:work"


async def test_title_of_a_spec_is_used_until_the_canvas_is_renamed(services: HostServices) -> None:
    async def save(canvas_id: str, spec_title: str | None, title: str | None = None) -> str:
        spec = {"version": 1, "description": f"saved with {title}"} | (
            {"title": spec_title} if spec_title else {}
        )
        draft = Draft(canvas_id=canvas_id, title=title, spec=spec)
        return (await services.library.upsert(THE_OWNER, draft)).canvas.title

    assert await save("ops", None) == "ops"
    assert await save("ops", "Operations") == "Operations"
    assert await save("ops", "Operations", "Night shift") == "Night shift"
    assert await save("ops", "Operations") == "Night shift", "the spec says nothing new"
    assert await save("ops", "Day shift") == "Day shift"
    assert await save("new", "From the start") == "From the start"
    change = {"state_patch": None, "title": None, "expected_revision": None}
    patched = await services.library.patch(
        THE_OWNER, "new", spec={"version": 1, "title": "Patched"}, **change
    )
    assert patched.canvas.title == "Patched"
