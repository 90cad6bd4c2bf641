"""Sweeps of artifacts and blobs without references, on a folder and a bucket."""

from __future__ import annotations

import asyncio

import pytest

from easel.core.artifact.artifact import START
from easel.core.principal import THE_OWNER
from easel.errors import NotFound, Unavailable
from easel.host.artifacts import MIN_GRACE_SECONDS, SWEEP_BATCH_SIZE, Artifacts
from easel.ids import OWNER, UserId
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
        await harness.artifacts.find(THE_OWNER, uploaded.artifact_id)
    assert await harness.artifacts.sweep() == 0


async def test_referenced_artifact_is_not_swept(harness: ArtifactHarness) -> None:
    await harness.sql(
        "insert into canvases (user_id, canvas_id, agent_id, title, spec, state) "
        "values ('owner', 'c', 'main', '', '{}', '{}')"
    )
    uploaded = await harness.upload(PNG)
    await harness.sql(
        "insert into artifact_refs (user_id, artifact_id, canvas_id) "
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
        aged_key(GRACE + 60, UserId("deleted")),
    )
    others = [
        "users/owner/agents/main/canvases/c/assets/index.html",
        "users/owner/artifacts/readme.txt",
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
    with pytest.raises(Unavailable):
        await harness.artifacts.sweep()
    assert await harness.sql("select 1 from artifacts") == [], "rows are deleted before blobs"
    assert harness.storage.everything() == [uploaded.blob_key]
    harness.blobs.before.clear()
    assert await harness.artifacts.sweep() == 1
    assert harness.storage.everything() == []


async def test_sweep_takes_several_batches(harness: ArtifactHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("easel.host.artifacts.SWEEP_BATCH_SIZE", 3)
    assert SWEEP_BATCH_SIZE > 3
    await harness.artifacts.store(OWNER, offloaded(*(b"%d" % n for n in range(7))))
    for _ in range(7):
        await harness.storage.blobs.put(aged_key(GRACE + 60), b"x")
    harness.clock.ahead = GRACE + 60
    assert await harness.artifacts.sweep() == 14
    assert harness.storage.everything() == []


async def test_grace_period_is_at_least_an_hour(harness: ArtifactHarness) -> None:
    artifacts = Artifacts(harness.database.artifacts, harness.storage.blobs, max_bytes=LIMIT, grace_seconds=0)
    await harness.upload(PNG)
    harness.clock.ahead = MIN_GRACE_SECONDS - 60
    assert await artifacts.sweep() == 0
    harness.clock.ahead = MIN_GRACE_SECONDS + 60
    assert await artifacts.sweep() == 1


async def test_concurrent_sweeps_are_safe(harness: ArtifactHarness) -> None:
    await harness.artifacts.store(OWNER, offloaded(*(b"%d" % n for n in range(20))))
    harness.clock.ahead = GRACE + 60
    swept = await asyncio.gather(*(harness.artifacts.sweep() for _ in range(4)))
    assert sum(swept) >= 20
    assert harness.storage.everything() == []
    assert (await harness.database.artifacts.sweep(START, GRACE, 100)).blob_keys == []
