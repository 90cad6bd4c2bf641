"""Versions of canvases on every store: a change of spec or assets keeps what it replaces."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.canvas.assets import Asset
from easel.core.canvas.canvas import Change
from easel.core.canvas.versions import Part
from easel.ids import OWNER
from tests.requirements import rule
from tests.stores.harness import CONSTRAINT_ERRORS
from tests.stores.test_canvases_contract import EVENTS, NAME, change, create_canvas, get_canvas, set_state

if TYPE_CHECKING:
    from easel.core.canvas.versions import VersionContent
    from easel.host.ports import CanvasStore, CanvasVersionStore
    from tests.stores.harness import Store


@pytest.fixture
def canvases(store: Store) -> CanvasStore:
    return store.database.canvases


@pytest.fixture
def versions(store: Store) -> CanvasVersionStore:
    return store.database.canvas_versions


def asset(name: str, blob: str) -> Asset:
    return Asset(f"assets/{name}", f"key/{blob}", len(blob))


def write(author: str | None = "person owner", **parts: Any) -> Any:
    """Return a decision that makes this change."""
    parts = {"written_by": author, **parts}
    return lambda snapshot: Change(events=[EVENTS.updated(snapshot.canvas.revision + 1, ["$spec"])], **parts)


async def read(versions: CanvasVersionStore, number: int) -> VersionContent:
    found = await versions.get(OWNER, NAME, number)
    assert found is not None
    return found


async def numbers(versions: CanvasVersionStore) -> list[int]:
    return [
        found.number
        for found in await versions.list_versions(OWNER, NAME, before=None, limit=500, only_accepted=False)
    ]


def set_max_versions(canvases: CanvasStore, count: int) -> None:
    canvases._max_versions = count  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def default_max_versions(canvases: CanvasStore) -> Any:
    """Set the number of kept versions again: the tests share one open database."""
    before = canvases._max_versions  # type: ignore[attr-defined]
    yield
    set_max_versions(canvases, before)


async def test_each_change_of_spec_or_assets_keeps_the_version_before(
    canvases: CanvasStore, versions: CanvasVersionStore
) -> None:
    await create_canvas(
        canvases,
        title="First",
        spec={"version": 1, "actions": {"a": {"kind": "x"}}},
        assets=[asset("a", "a1"), asset("b", "b1")],
        written_by="person owner",
    )
    await change(canvases, set_state(n=1))
    await change(canvases, write("agent main", spec={"version": 1, "actions": {"b": {}}}, title="Second"))
    await change(canvases, write(put=[asset("a", "a2"), asset("c", "c1")], removed=["assets/b"]))
    await change(canvases, write(title="Third", written_by=None))

    second, first = await versions.list_versions(OWNER, NAME, before=None, limit=10, only_accepted=False)
    assert (first.number, first.revision, first.title, first.written_by) == (1, 2, "First", "person owner")
    assert (second.number, second.revision, second.title, second.written_by) == (2, 3, "Second", "agent main")
    assert first.differences is None
    assert second.differences is not None
    assert second.differences.parts == [
        Part("title", "changed"),
        Part("spec.actions.a", "removed"),
        Part("spec.actions.b", "added"),
    ]
    current = await versions.current(OWNER, NAME)
    assert current is not None
    assert (current.number, current.revision, current.written_by) == (3, 5, "person owner")
    assert current.differences is not None
    assert current.differences.parts == [
        Part("assets/a", "changed"),
        Part("assets/b", "removed"),
        Part("assets/c", "added"),
    ]
    created = (await get_canvas(canvases)).canvas.created_at
    assert first.written_at is not None
    assert abs(first.written_at - created) < timedelta(milliseconds=1)
    assert second.written_at is not None
    assert current.written_at is not None
    assert created < second.written_at < current.written_at

    content = await read(versions, 1)
    assert content.spec == {"version": 1, "actions": {"a": {"kind": "x"}}}
    assert content.assets == [asset("a", "a1"), asset("b", "b1")]
    assert content.canvas_revision == 5
    content = await read(versions, 2)
    assert content.spec == {"version": 1, "actions": {"b": {}}}
    assert content.assets == [asset("a", "a1"), asset("b", "b1")]
    assert await versions.list_versions(OWNER, NAME, before=2, limit=10, only_accepted=False) == [first]
    assert await versions.list_versions(OWNER, NAME, before=None, limit=1, only_accepted=False) == [second]


async def test_unknown_version_and_deleted_canvas_have_no_content(
    canvases: CanvasStore, versions: CanvasVersionStore, store: Store
) -> None:
    await create_canvas(canvases)
    await change(canvases, write(spec={"n": 1}))
    assert await versions.get(OWNER, NAME, 2) is None
    other = await store.add_user("other")
    assert await versions.get(other, NAME, 1) is None
    await canvases.delete(OWNER, NAME, lambda _: None)
    assert await versions.get(OWNER, NAME, 1) is None
    assert await versions.current(OWNER, NAME) is None


async def test_spec_of_an_unchanged_spec_is_not_copied(
    canvases: CanvasStore, versions: CanvasVersionStore, store: Store
) -> None:
    await create_canvas(canvases, spec={"n": 1})
    await change(canvases, write(put=[asset("a", "a1")]))
    await change(canvases, write(put=[asset("a", "a2")]))
    await change(canvases, write(spec={"n": 2}))
    kept = await store.sql("select version_no from canvas_versions where spec is not null")
    assert [row["version_no"] for row in kept] == [3]
    assert [(await read(versions, number)).spec for number in (1, 2, 3)] == [{"n": 1}] * 3


async def test_failed_change_keeps_no_version(
    canvases: CanvasStore, versions: CanvasVersionStore, store: Store
) -> None:
    await create_canvas(canvases, assets=[asset("a", "a1")])
    await create_canvas(canvases, "other", assets=[asset("a", "other")])
    with pytest.raises(CONSTRAINT_ERRORS):  # after the version was stored
        await change(canvases, write(spec={"n": 1}, put=[asset("a", "other")]))
    assert await numbers(versions) == []
    assert await store.sql("select * from canvas_version_assets") == []


@rule("CV-44")
async def test_concurrent_changes_keep_every_content_once(
    canvases: CanvasStore, versions: CanvasVersionStore
) -> None:
    await create_canvas(canvases, spec={"n": 0})
    outcomes = await asyncio.gather(
        *(change(canvases, write(spec={"n": n}, put=[asset("a", f"a{n}")])) for n in range(1, 21))
    )
    assert all(outcome.orphaned_blobs == [] for outcome in outcomes)
    assert await numbers(versions) == list(range(20, 0, -1))
    specs = [(await read(versions, number)).spec["n"] for number in range(1, 21)]
    last = (await get_canvas(canvases)).canvas.spec["n"]
    assert sorted([*specs, last]) == list(range(21))
    for number in range(2, 21):  # spec and asset of each version are those of one change
        content = await read(versions, number)
        assert content.assets == [asset("a", f"a{content.spec['n']}")]


async def test_oldest_versions_are_pruned_and_their_unused_blobs_are_orphaned(
    canvases: CanvasStore, versions: CanvasVersionStore
) -> None:
    set_max_versions(canvases, 2)
    await create_canvas(canvases, assets=[asset("a", "a1"), asset("b", "b1")])
    await change(canvases, write(put=[asset("a", "a2")]))
    await change(canvases, write(put=[asset("a", "a1")]))  # as a restore does
    outcome = await change(canvases, write(put=[asset("a", "a3")]))
    assert await numbers(versions) == [3, 2]
    assert outcome.orphaned_blobs == []  # version 1 had a1, which version 3 has, too
    outcome = await change(canvases, write(put=[asset("a", "a4")]))
    assert outcome.orphaned_blobs == ["key/a2"]
    outcome = await change(canvases, write(spec={"n": 1}))
    assert outcome.orphaned_blobs == ["key/a1"]
    assert await numbers(versions) == [5, 4]
    assert (await read(versions, 4)).assets == [asset("a", "a3"), asset("b", "b1")]
    assert (await read(versions, 5)).assets == [asset("a", "a4"), asset("b", "b1")]


async def test_lower_limit_prunes_all_surplus_versions(
    canvases: CanvasStore, versions: CanvasVersionStore
) -> None:
    await create_canvas(canvases, assets=[asset("a", "a0")])
    for n in range(1, 6):
        await change(canvases, write(put=[asset("a", f"a{n}")]))
    set_max_versions(canvases, 2)
    outcome = await change(canvases, write(put=[asset("a", "a6")]))
    assert (await numbers(versions), sorted(outcome.orphaned_blobs)) == (
        [6, 5],
        ["key/a0", "key/a1", "key/a2", "key/a3"],
    )


@rule("RS-72")
async def test_newest_version_by_a_person_and_newest_accepted_one_are_never_pruned(
    canvases: CanvasStore, versions: CanvasVersionStore
) -> None:
    set_max_versions(canvases, 3)
    first = [asset("a", "a0"), asset("same", "s")]
    await create_canvas(canvases, spec={"n": 0}, assets=first, written_by="person owner")
    await change(canvases, write(title="Seen", put=[asset("a", "a1")]))  # version 2, by a person
    by_agent: dict[str, Any] = {"author": "agent main", "is_accepted": False}
    await change(canvases, write(**by_agent, put=[asset("b", "b1")]))
    await change(canvases, write(author=None, is_accepted=True))  # version 3, accepted
    orphaned: list[str] = []
    for n in range(1, 61):  # each removes, replaces or adds an asset, and every third one replaces the spec
        spec: dict[str, Any] = {"spec": {"n": n}} if n % 3 == 0 else {}
        put = [asset("a", f"x{n}"), asset(f"new{n}", f"new{n}")]
        removed = ["assets/b"] if n == 2 else []
        outcome = await change(canvases, write(**by_agent, **spec, put=put, removed=removed))
        orphaned += outcome.orphaned_blobs
    assert await numbers(versions) == [62, 61, 60, 3, 2]
    seen, accepted = await read(versions, 2), await read(versions, 3)
    assert (seen.spec, seen.assets) == ({"n": 0}, [asset("a", "a1"), asset("same", "s")])
    assert (accepted.spec, accepted.assets) == (
        {"n": 0},
        [asset("a", "a1"), asset("b", "b1"), asset("same", "s")],
    )
    assert [found.is_accepted for found in (seen.version, accepted.version)] == [True, True]
    assert not {"key/a1", "key/b1", "key/s"} & set(orphaned)
    assert {f"key/x{n}" for n in range(1, 57)} <= set(orphaned)
    listed = await versions.list_versions(OWNER, NAME, before=None, limit=1, only_accepted=True)
    assert [found.number for found in listed] == [3]
    await change(canvases, write(put=[asset("a", "mine")], is_accepted=True))  # by a person
    for n in range(5):
        await change(canvases, write(**by_agent, put=[asset("a", f"y{n}")]))
    assert await numbers(versions) == [68, 67, 66, 64, 3]  # 3: the newest accepted one by an agent


@rule("RS-72")
async def test_change_of_the_session_alone_is_a_version_with_the_session_before(
    canvases: CanvasStore, versions: CanvasVersionStore
) -> None:
    await create_canvas(canvases, owner_session_key=None)
    await change(canvases, write(owner_session_key="agent:main:work"))
    found = await read(versions, 1)
    current = await versions.current(OWNER, NAME)
    assert current is not None
    assert (found.version.session_key, current.session_key) == ("agent:main:main", "agent:main:work")
    canvas = (await get_canvas(canvases)).canvas
    assert (canvas.spec_revision, canvas.revision) == (2, 2), "one who saw the former session must look again"


async def test_time_of_the_content_changes_with_spec_and_assets_but_not_with_the_state(
    canvases: CanvasStore, versions: CanvasVersionStore
) -> None:
    """A restore compares it, to find out whether a version that it has read is still as it was."""
    await create_canvas(canvases, assets=[asset("a", "a1")])
    seen: list[datetime | None] = []
    for decide in (write(put=[asset("a", "a2")]), set_state(n=1), write(spec={"n": 1})):
        await change(canvases, decide)
        written_at = (await get_canvas(canvases)).written_at
        assert (await read(versions, 1)).canvas_written_at == written_at
        seen.append(written_at)
    after_asset, after_state, after_spec = seen
    assert after_asset is not None
    assert after_asset == after_state != after_spec


async def test_same_content_under_a_new_key_makes_no_version(
    canvases: CanvasStore, versions: CanvasVersionStore
) -> None:
    digest = "a" * 52
    keys = [
        f"accounts/owner/agents/main/canvases/cockpit/assets/{name * 26}-{digest}/a" for name in ("0", "1")
    ]
    old, new = (Asset("assets/a", key, 1) for key in keys)
    await create_canvas(canvases, assets=[old])
    outcome = await change(canvases, write(put=[new]))
    assert (await numbers(versions), outcome.orphaned_blobs) == ([], [old.blob_key])


async def test_blob_of_a_version_is_not_swept(canvases: CanvasStore) -> None:
    set_max_versions(canvases, 1)
    await create_canvas(canvases, assets=[asset("a", "a1")])
    await change(canvases, write(put=[asset("a", "a2")]))
    long_ago = datetime.now(UTC) - timedelta(days=1)
    keys = {f"key/{name}": long_ago for name in ("a1", "a2", "a3")}
    assert await canvases.find_unknown_assets(keys, 3_600) == ["key/a3"]
    await change(canvases, write(removed=["assets/a"]))
    assert sorted(await canvases.find_unknown_assets(keys, 3_600)) == ["key/a1", "key/a3"]


async def test_delete_of_a_canvas_returns_the_blobs_of_its_versions_and_purges_them(
    canvases: CanvasStore, versions: CanvasVersionStore, store: Store
) -> None:
    await create_canvas(canvases, assets=[asset("a", "a1"), asset("b", "b1")])
    await change(canvases, write(put=[asset("a", "a2"), asset("c", "c1")]))
    await change(canvases, write(put=[asset("a", "a1")], spec={"n": 1}))
    keys = await canvases.delete(OWNER, NAME, lambda _: None)
    assert keys is not None
    assert sorted(keys) == ["key/a1", "key/a2", "key/b1", "key/c1"]
    await store.purge()
    for table in ("canvas_versions", "canvas_version_assets"):
        assert await store.sql(f"select 1 from {table}") == []
    await create_canvas(canvases)
    assert await numbers(versions) == []


@rule("RS-73")
async def test_authors_of_values_are_stored_with_the_change_that_they_belong_to(
    canvases: CanvasStore,
) -> None:
    await create_canvas(canvases)
    authors = {"/id": "agent main"}
    changed = await change(canvases, write(state={"id": 1}, unreviewed=authors))
    unchanged = await change(canvases, write(title="Other"))
    stored = await canvases.get(OWNER, NAME)
    assert changed is not None
    assert unchanged is not None
    assert stored is not None
    found = [snapshot.canvas.unreviewed for snapshot in (changed.snapshot, unchanged.snapshot, stored)]
    assert found == [authors] * 3
    await change(canvases, write(is_accepted=True, unreviewed={}))
    after = await canvases.get(OWNER, NAME)
    assert after is not None
    assert after.canvas.unreviewed == {}
