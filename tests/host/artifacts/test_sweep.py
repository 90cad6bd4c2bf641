"""Sweeps of artifacts and blobs without references, on a folder and a bucket."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest
import structlog

from easel.core.artifact.artifact import START
from easel.errors import BadInput, NotFound, Unavailable
from easel.host.artifacts.artifacts import SWEEP_BATCH_SIZE, Artifacts
from easel.host.periodic import MAX_FAILURES
from easel.host.sweeps import shared_periodic
from easel.ids import OWNER, AccountId
from tests.host.artifact_harness import (
    GRACE,
    LIMIT,
    PNG,
    ArtifactHarness,
    aws,
    bucket,
    disk,
    harness,
    location,
    s3_server,
)
from tests.requirements import case
from tests.support.artifacts import aged_key, offloaded
from tests.support.principals import THE_OWNER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from easel.core.artifact.artifact import ArtifactKey
    from easel.host.periodic import Periodic
    from easel.host.ports import ArtifactStore

# Fixtures.
__all__ = ["aws", "bucket", "disk", "harness", "location", "s3_server"]


async def test_unreferenced_artifact_is_swept_after_the_grace_period(harness: ArtifactHarness) -> None:
    uploaded = await harness.upload(PNG)
    harness.clock.ahead = GRACE - 60
    assert await harness.artifacts.sweep() == 0
    assert await harness.artifacts.read(OWNER, uploaded.artifact_id) == PNG
    harness.clock.ahead = GRACE + 60
    assert await harness.artifacts.sweep() == 1
    assert harness.storage.everything() == []
    assert await harness.sql("select 1 from artifacts") == []
    with pytest.raises(NotFound):
        await harness.artifacts.find(OWNER, uploaded.artifact_id)
    assert await harness.artifacts.sweep() == 0


async def test_referenced_artifact_is_not_swept(harness: ArtifactHarness) -> None:
    await harness.sql(
        "insert into canvases (account_id, canvas_id, agent_id, title, spec, state) "
        "values ('owner', 'c', 'main', '', '{}', '{}')"
    )
    uploaded = await harness.upload(PNG)
    await harness.sql(
        "insert into artifact_refs (account_id, artifact_id, canvas_id) "
        f"values ('owner', '{uploaded.artifact_id}', 'c')"
    )
    harness.clock.ahead = 10 * GRACE
    assert await harness.artifacts.sweep() == 0
    assert await harness.artifacts.read(OWNER, uploaded.artifact_id) == PNG


@case("D7")
async def test_old_blob_without_a_row_is_swept(harness: ArtifactHarness) -> None:
    old, young, of_deleted_user = (
        aged_key(GRACE + 60),
        aged_key(GRACE - 60),
        aged_key(GRACE + 60, AccountId("deleted")),
    )
    others = [
        "accounts/owner/agents/main/canvases/c/assets/index.html",
        "accounts/owner/artifacts/readme.txt",
        "elsewhere",
    ]
    for key in (old, young, of_deleted_user, *others):
        await harness.storage.blobs.put(key, b"x")
    uploaded = await harness.upload(PNG)
    assert await harness.artifacts.sweep() == 2
    assert sorted(harness.storage.everything()) == sorted([young, uploaded.blob_key, *others])


@case("D7")
async def test_interrupted_sweep_is_completed_by_the_next(harness: ArtifactHarness) -> None:
    uploaded = await harness.upload(PNG)
    harness.clock.ahead = GRACE + 60
    harness.blobs.fail_on("delete")
    assert await harness.artifacts.sweep() == 0
    assert await harness.sql("select 1 from artifacts") == [], "rows are deleted before blobs"
    assert harness.storage.everything() == [uploaded.blob_key]
    harness.blobs.before.clear()
    assert await harness.artifacts.sweep() == 1
    assert harness.storage.everything() == []


async def test_sweep_takes_several_batches(harness: ArtifactHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("easel.host.artifacts.artifacts.SWEEP_BATCH_SIZE", 3)
    assert SWEEP_BATCH_SIZE > 3
    await harness.artifacts.store(OWNER, offloaded(*(b"%d" % n for n in range(7))))
    for _ in range(7):
        await harness.storage.blobs.put(aged_key(GRACE + 60), b"x")
    harness.clock.ahead = GRACE + 60
    assert await harness.artifacts.sweep() == 14
    assert harness.storage.everything() == []


class FailingStore:
    """A store of artifacts in which the deletion of some pages fails."""

    def __init__(self, store: ArtifactStore, failures: Iterator[bool]) -> None:
        self._store = store
        self._failures = failures

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def delete_orphans(self, keys: Sequence[ArtifactKey], older_than_seconds: float) -> list[str]:
        if next(self._failures):
            raise Unavailable(what="The database")
        return await self._store.delete_orphans(keys, older_than_seconds)


def failing_artifacts(harness: ArtifactHarness, failures: Iterator[bool]) -> Artifacts:
    store = FailingStore(harness.database.artifacts, failures)
    return Artifacts(
        cast("ArtifactStore", store), harness.storage.blobs, max_bytes=LIMIT, grace_seconds=GRACE
    )


async def test_sweep_continues_after_a_batch_that_failed_and_logs_once(
    harness: ArtifactHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise nothing after that batch, and no blob without a row, would ever be swept."""
    monkeypatch.setattr("easel.host.artifacts.artifacts.SWEEP_BATCH_SIZE", 2)
    await harness.artifacts.store(OWNER, offloaded(*(b"%d" % n for n in range(8))))
    await harness.storage.blobs.put(aged_key(GRACE + 60), b"x")
    harness.clock.ahead = GRACE + 60
    artifacts = failing_artifacts(harness, iter([True, True, False, False]))
    with structlog.testing.capture_logs() as logged:
        assert await artifacts.sweep() == 5
    assert [line["event"] for line in logged if line["log_level"] == "warning"] == [
        "artifacts.sweep_incomplete"
    ]
    assert await harness.artifacts.sweep() == 4
    assert harness.storage.everything() == []


async def test_sweep_gives_up_rows_after_some_failed_batches(
    harness: ArtifactHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("easel.host.artifacts.artifacts.SWEEP_BATCH_SIZE", 1)
    await harness.artifacts.store(OWNER, offloaded(*(b"%d" % n for n in range(8))))
    harness.clock.ahead = GRACE + 60
    assert await failing_artifacts(harness, iter([True] * MAX_FAILURES)).sweep() == 0


async def test_upload_ends_before_its_row_can_be_swept(harness: ArtifactHarness) -> None:
    artifacts = Artifacts(
        harness.database.artifacts, harness.storage.blobs, max_bytes=LIMIT, grace_seconds=0.02
    )

    async def slow() -> AsyncIterator[bytes]:
        yield b"x"
        await asyncio.Event().wait()

    with pytest.raises(BadInput, match=r"must end within 0\.01 seconds"):
        await artifacts.upload(THE_OWNER, slow())


async def test_one_of_several_instances_sweeps_in_each_interval(harness: ArtifactHarness) -> None:
    swept = list[str]()

    def instance(name: str) -> Periodic:
        async def sweep() -> None:
            swept.append(name)

        return shared_periodic(harness.database.sweeps, "artifacts.sweep", 3600, sweep)

    instances = [instance("a"), instance("b")]
    for elapsed in (0, 10, 3600, 3610):
        harness.clock.ahead = elapsed
        for periodic in instances:
            await periodic.once()
    assert swept == ["a", "a"]


async def test_concurrent_sweeps_are_safe(harness: ArtifactHarness) -> None:
    await harness.artifacts.store(OWNER, offloaded(*(b"%d" % n for n in range(20))))
    harness.clock.ahead = GRACE + 60
    swept = await asyncio.gather(*(harness.artifacts.sweep() for _ in range(4)))
    assert sum(swept) >= 20
    assert harness.storage.everything() == []
    assert (await harness.database.artifacts.find_orphans(START, GRACE, 100)).keys == []
