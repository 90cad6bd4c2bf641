"""The sweep on every store beside many references: its cost, its locks, and who does it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from easel.core.artifact.artifact import START
from easel.host.artifacts.artifacts import SWEEP_BATCH_SIZE
from tests.requirements import case

if TYPE_CHECKING:
    from easel.host.ports import ArtifactStore
    from tests.stores.harness import Store

pytestmark = pytest.mark.slow

GRACE = 7 * 86_400.0
ORPHANS = 500
ARTIFACTS, CANVASES = 1_000, 100  # every canvas refers to every artifact: 100,000 references
# A sweep that scans the references takes some hundred times as long beside them; one by index, as long.
MAX_RATIO = 10
NOTICEABLE_SECONDS = 0.2


def numbers(store: Store, count: int, name: str = "n") -> str:
    """Return a table of the numbers from 1 as SQL."""
    if store.kind == "postgres":
        return f"generate_series(1, {count}) as {name}s({name})"
    return (
        f"(with recursive t(n) as (select 1 union all select n + 1 from t where n < {count})"
        f" select n as {name} from t) as {name}s"
    )


async def add_artifacts(store: Store, prefix: str, count: int) -> None:
    """Store artifacts that were touched long ago."""
    is_stored = "true" if store.kind == "postgres" else "1"
    long_ago = store.ago(GRACE + 60)
    await store.sql(
        "insert into artifacts (account_id, artifact_id, size, media_type, blob_key, is_stored,"
        f" touched_at) select 'owner', '{prefix}' || n, 1, '', '{prefix}' || n, {is_stored}, {long_ago}"
        f" from {numbers(store, count)}"
    )


async def add_references(store: Store, prefix: str, canvases: int) -> None:
    """Add canvases that refer to all artifacts."""
    await store.sql(
        "insert into canvases (account_id, canvas_id, agent_id, title, spec, state)"
        f" select 'owner', '{prefix}' || n, 'main', '', '{{}}', '{{}}' from {numbers(store, canvases)}"
    )
    # One statement for each canvas: a statement for all exceeds the time limit of a query on a busy machine.
    for number in range(1, canvases + 1):
        await store.sql(
            "insert into artifact_refs (account_id, artifact_id, canvas_id)"
            f" select account_id, artifact_id, '{prefix}{number}' from artifacts"
        )


async def sweep(artifacts: ArtifactStore, on_page: list[int] | None = None) -> int:
    """Sweep all artifacts. Returns how many were deleted; adds the size of each deleted page to `on_page`."""
    swept, position = 0, START
    while position is not None:
        page = await artifacts.find_orphans(position, GRACE, SWEEP_BATCH_SIZE)
        if page.keys:
            deleted = len(await artifacts.delete_orphans(page.keys, GRACE))
            swept += deleted
            if on_page is not None:
                on_page.append(deleted)
        position = page.next
    return swept


async def seconds_of_sweep(store: Store) -> float:
    await add_artifacts(store, "orphan", ORPHANS)
    began = time.perf_counter()
    assert await sweep(store.database.artifacts) == ORPHANS
    return time.perf_counter() - began


async def test_sweep_beside_many_references_costs_about_as_much_as_beside_few(own_store: Store) -> None:
    await add_artifacts(own_store, "kept", ARTIFACTS)
    await add_references(own_store, "first", 1)
    beside_few = min([await seconds_of_sweep(own_store) for _ in range(2)])
    await add_references(own_store, "other", CANVASES)
    beside_many = min([await seconds_of_sweep(own_store) for _ in range(2)])
    assert beside_many < max(MAX_RATIO * beside_few, NOTICEABLE_SECONDS), (beside_few, beside_many)


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_other_write_waits_for_at_most_one_batch_of_the_sweep(own_store: Store) -> None:
    """SQLite has one writer. A write waits for the batch that runs; no other batch starts before it."""
    await add_artifacts(own_store, "kept", ARTIFACTS)
    await add_references(own_store, "c", 1)
    await add_artifacts(own_store, "orphan", ORPHANS)
    pages, waited = list[int](), list[int]()
    sweeping = asyncio.create_task(sweep(own_store.database.artifacts, pages))
    while not sweeping.done():
        before = len(pages)
        await own_store.sql("update canvases set title = 'x' where canvas_id = 'c1'")
        waited.append(len(pages) - before)
    assert await sweeping == ORPHANS
    assert max(pages) <= SWEEP_BATCH_SIZE
    assert max(waited) <= 1


@pytest.mark.parametrize("kind", ["postgres"])
async def test_sweep_neither_locks_nor_rewrites_artifacts_with_references(own_store: Store) -> None:
    await add_artifacts(own_store, "kept", 10)
    await add_references(own_store, "c", 1)
    await own_store.sql("update artifacts set size = 2")
    await add_artifacts(own_store, "orphan", 10)
    versions = (
        "select artifact_id, ctid::text, xmin::text, xmax::text from artifacts"
        " where artifact_id like 'kept%' order by artifact_id"
    )
    before = await own_store.sql(versions)
    assert await sweep(own_store.database.artifacts) == 10
    assert await own_store.sql(versions) == before


@case("D7")
async def test_interval_of_a_sweep_is_claimed_once(store: Store) -> None:
    sweeps = store.database.sweeps
    claims = await asyncio.gather(*(sweeps.claim("artifacts.sweep", 3600) for _ in range(10)))
    assert sorted(claims) == [False] * 9 + [True]
    assert await sweeps.claim("assets.sweep", 3600), "each sweep has its own claim"
    await store.sql(f"update sweeps set next_at = {store.ago(1)} where name = 'artifacts.sweep'")
    assert await sweeps.claim("artifacts.sweep", 3600)
    assert not await sweeps.claim("artifacts.sweep", 3600)
