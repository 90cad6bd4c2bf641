"""Artifacts on a folder and a bucket: stored once, and returned exactly or not at all."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from easel.core.stream.payload_limit import OffloadedValue
from easel.errors import BadInput, CorruptData, NotFound, TooLarge, Unavailable
from easel.host.artifacts.artifacts import Artifacts
from easel.ids import OWNER
from easel.stores.blobs.bucket import PART_BYTES
from easel.stores.blobs.store import CHUNK_BYTES
from tests.host.artifact_harness import (
    GRACE,
    LIMIT,
    OTHER,
    PNG,
    ArtifactHarness,
    aws,
    bucket,
    disk,
    harness,
    location,
    s3_server,
)
from tests.requirements import case, rule
from tests.stores.blob_locations import BlobLocation, pieces
from tests.support.artifacts import id_of, offloaded
from tests.support.principals import THE_OWNER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


# Fixtures.
__all__ = ["aws", "bucket", "disk", "harness", "location", "s3_server"]


# --- offloaded values ---------------------------------------------------------------------------------------


async def test_media_type_of_an_offloaded_value(harness: ArtifactHarness) -> None:
    await harness.artifacts.store(
        OWNER,
        [OffloadedValue(id_of(b'{"a":1}'), b'{"a":1}', "application/json"), *offloaded(b"[1]", b"<script>")],
    )
    types = {
        row["artifact_id"]: row["media_type"]
        for row in await harness.sql("select artifact_id, media_type from artifacts")
    }
    assert types == {
        id_of(b'{"a":1}'): "application/json",
        id_of(b"[1]"): "text/plain",
        id_of(b"<script>"): "text/html",
    }


@rule("CC-24")
async def test_stored_value_is_read_back_exactly(harness: ArtifactHarness) -> None:
    contents = [b"a", "Grüße".encode(), bytes(range(256)) * 40]
    await harness.artifacts.store(OWNER, offloaded(*contents))
    for content in contents:
        assert await harness.artifacts.read(OWNER, id_of(content)) == content
    with pytest.raises(NotFound):
        await harness.artifacts.find(OTHER.account_id, id_of(b"a"))


async def test_equal_content_is_stored_once_per_user(harness: ArtifactHarness) -> None:
    await harness.artifacts.store(OWNER, offloaded(b"a", b"b", b"a"))
    await harness.artifacts.store(OWNER, offloaded(b"b", b"a"))
    assert harness.blobs.calls.count("put") == 2
    assert len(harness.storage.everything()) == 2
    await harness.artifacts.store(OTHER.account_id, offloaded(b"a"))
    assert len(harness.storage.everything()) == 3, "users do not share blobs"
    await harness.artifacts.store(OWNER, [])


async def test_concurrent_stores_of_equal_content_write_it_once(harness: ArtifactHarness) -> None:
    contents = [b"%d" % n for n in range(5)]
    await asyncio.gather(*(harness.artifacts.store(OWNER, offloaded(*contents)) for _ in range(8)))
    assert len(harness.storage.everything()) == 5
    assert len(await harness.sql("select 1 from artifacts where is_stored")) == 5


async def test_unavailable_blob_storage_stores_nothing_and_a_retry_succeeds(harness: ArtifactHarness) -> None:
    harness.blobs.fail_on("put")
    with pytest.raises(Unavailable):
        await harness.artifacts.store(OWNER, offloaded(b"a", b"b"))
    assert await harness.row(b"a") is None
    harness.blobs.before.clear()
    await harness.artifacts.store(OWNER, offloaded(b"a", b"b"))
    assert await harness.artifacts.read(OWNER, id_of(b"a")) == b"a"


@case("D7")
async def test_store_starts_again_if_its_row_was_swept(harness: ArtifactHarness) -> None:
    """The blob of the swept row must not be used; a later sweep deletes it."""

    async def sweep_row(_: str) -> None:
        harness.blobs.before.clear()
        harness.clock.ahead += GRACE + 60
        assert await harness.artifacts.sweep() == 1
        harness.clock.ahead -= GRACE + 60

    harness.blobs.before["put"] = sweep_row
    await harness.artifacts.store(OWNER, offloaded(b"a"))
    assert await harness.artifacts.read(OWNER, id_of(b"a")) == b"a"
    assert len(harness.storage.everything()) == 2
    harness.clock.ahead += GRACE + 60
    await harness.artifacts.store(OWNER, offloaded(b"a"))
    assert await harness.artifacts.sweep() == 1
    assert [
        row["blob_key"] for row in await harness.sql("select blob_key from artifacts")
    ] == harness.storage.everything()


# --- uploads ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, CHUNK_BYTES + 1, PART_BYTES + 1])
@rule("CC-24")
async def test_upload_is_named_by_its_digest(harness: ArtifactHarness, size: int) -> None:
    content = os.urandom(size)
    uploaded = await harness.upload(content)
    assert (uploaded.artifact_id, uploaded.size, uploaded.sha256) == (
        id_of(content),
        size,
        hashlib.sha256(content).hexdigest(),
    )
    assert uploaded.uri == f"/api/artifacts/{uploaded.artifact_id}"
    assert uploaded.is_new
    assert uploaded.is_stored
    assert await harness.artifacts.read(OWNER, uploaded.artifact_id) == content
    assert harness.storage.everything() == [uploaded.blob_key]


async def test_upload_detects_the_media_type(harness: ArtifactHarness) -> None:
    assert (await harness.upload(PNG, "text/html")).media_type == "image/png"
    assert (await harness.upload(b"<script>alert(1)</script>", "image/png")).media_type == "text/html"
    assert (
        await harness.artifacts.upload(THE_OWNER, pieces(PNG + b"in single bytes", 1), "")
    ).media_type == "image/png"


async def test_equal_upload_returns_the_existing_artifact(harness: ArtifactHarness) -> None:
    first = await harness.upload(PNG)
    again = await harness.upload(PNG)
    assert not again.is_new
    assert again.blob_key == first.blob_key
    assert harness.storage.everything() == [first.blob_key]
    await harness.artifacts.store(OWNER, offloaded(PNG))
    assert harness.storage.everything() == [first.blob_key]
    other = await harness.upload(PNG, principal=OTHER)
    assert other.is_new
    assert len(harness.storage.everything()) == 2


async def test_oversized_upload_is_refused_early_and_stores_nothing(harness: ArtifactHarness) -> None:
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        while True:
            read += 65_536
            yield bytes(65_536)

    with pytest.raises(TooLarge):
        await harness.artifacts.upload(THE_OWNER, endless(), "")
    assert read <= LIMIT + 65_536
    assert harness.storage.everything() == []
    assert await harness.sql("select 1 from artifacts") == []
    assert (await harness.upload(bytes(LIMIT))).size == LIMIT


async def test_empty_upload_is_refused(harness: ArtifactHarness) -> None:
    with pytest.raises(BadInput):
        await harness.upload(b"")
    assert harness.storage.everything() == []


@pytest.mark.parametrize("after", [10, PART_BYTES + 10])
async def test_interrupted_upload_stores_nothing(harness: ArtifactHarness, after: int) -> None:
    async def broken() -> AsyncIterator[bytes]:
        async for piece in pieces(bytes(after)):
            yield piece
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await harness.artifacts.upload(THE_OWNER, broken(), "")
    assert harness.storage.everything() == []
    assert await harness.sql("select 1 from artifacts") == []


@case("D7")
async def test_lost_reply_of_the_database_does_not_delete_the_blob(
    harness: ArtifactHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = harness.database.artifacts.complete_upload

    async def lose_reply(*args: Any, **options: Any) -> Any:
        await original(*args, **options)
        raise Unavailable(what="The database")

    monkeypatch.setattr(harness.database.artifacts, "complete_upload", lose_reply)
    with pytest.raises(Unavailable):
        await harness.upload(PNG)
    assert await harness.artifacts.read(OWNER, id_of(PNG)) == PNG


@case("D7")
async def test_upload_whose_row_was_swept_is_refused(harness: ArtifactHarness) -> None:
    """A sweep may be deleting its blob."""

    async def paused() -> AsyncIterator[bytes]:
        yield PNG
        harness.clock.ahead = GRACE + 60
        assert await harness.artifacts.sweep() == 1
        harness.clock.ahead = 0

    with pytest.raises(Unavailable):
        await harness.artifacts.upload(THE_OWNER, paused(), "")
    assert await harness.sql("select 1 from artifacts") == []
    harness.clock.ahead = GRACE + 60
    assert await harness.artifacts.sweep() == 1
    assert harness.storage.everything() == []


@pytest.mark.parametrize("hours", [-24, 24])
async def test_wrong_clock_of_this_machine_does_not_affect_artifacts(
    harness: ArtifactHarness, hours: int
) -> None:
    """Only the clock of the database is used."""
    harness.clock.ahead = hours * 3600
    uploaded = await harness.upload(PNG)
    await harness.artifacts.store(OWNER, offloaded(b"a", PNG))
    assert await harness.artifacts.sweep() == 0
    assert await harness.artifacts.read(OWNER, uploaded.artifact_id) == PNG
    assert await harness.artifacts.read(OWNER, id_of(b"a")) == b"a"


async def test_large_upload_is_streamed(harness: ArtifactHarness, location: BlobLocation) -> None:
    artifacts = Artifacts(
        harness.database.artifacts, harness.storage.blobs, max_bytes=100_000_000, grace_seconds=GRACE
    )
    piece = os.urandom(65_536)

    async def large() -> AsyncIterator[bytes]:
        for _ in range(640):
            yield piece

    if location.url.startswith("s3"):
        return  # the S3 test server holds all content in the memory of this process
    tracemalloc.start()
    try:
        uploaded = await artifacts.upload(THE_OWNER, large(), "")
        async for _ in await artifacts.open(uploaded):
            pass
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()
    assert uploaded.size == 640 * 65_536


# --- reading ------------------------------------------------------------------------------------------------


async def test_unknown_artifact_is_not_found(harness: ArtifactHarness) -> None:
    zeros = "0" * 63
    for name in ("x", "art_", f"art_{zeros}0", f"ART_{zeros}0", f"art_{zeros}\n", "../../easel.db"):
        with pytest.raises(NotFound):
            await harness.artifacts.find(OWNER, name)


async def test_range_is_read_like_a_slice(harness: ArtifactHarness) -> None:
    content = os.urandom(2 * CHUNK_BYTES + 7)
    uploaded = await harness.upload(content)
    ranges = [(0, 1), (0, None), (CHUNK_BYTES - 1, CHUNK_BYTES + 1), (5, None), (0, 2 * CHUNK_BYTES + 7)]
    for start, end in ranges:
        chunks = [chunk async for chunk in await harness.artifacts.open(uploaded, start, end)]
        assert b"".join(chunks) == content[start:end]


async def collect(chunks: AsyncIterator[bytes], into: list[bytes]) -> None:
    async for chunk in chunks:
        into.append(chunk)  # noqa: PERF401 - keeps the chunks before a failure


CONTENT = bytes(range(256)) * 3 * (CHUNK_BYTES // 256)
CORRUPTIONS = {
    "one bit": b"\x01" + CONTENT[1:],
    "the last byte": CONTENT[:-1] + b"\x00",
    "half of it": CONTENT[: len(CONTENT) // 2],
    "nothing": b"",
    "one byte more": CONTENT + b"\x00",
    "twice": CONTENT * 2,
}


@case("D7")
async def test_corrupt_blob_is_reported_and_never_returned(harness: ArtifactHarness) -> None:
    uploaded = await harness.upload(CONTENT)
    for name, corrupt in CORRUPTIONS.items():
        await harness.replace_blob(uploaded, corrupt)
        with capture_logs() as logged, pytest.raises(CorruptData):
            await harness.artifacts.read(OWNER, uploaded.artifact_id)
        assert [(line["event"], line["log_level"], line["artifact_id"]) for line in logged] == [
            ("artifact.corrupt", "error", uploaded.artifact_id)
        ], name
        sent = list[bytes]()
        with pytest.raises(CorruptData):
            await collect(await harness.artifacts.open(uploaded), sent)
        assert sum(map(len, sent)) < uploaded.size, f"{name}: the last chunk is held back"


async def test_missing_blob_is_reported_as_corrupt(harness: ArtifactHarness) -> None:
    uploaded = await harness.upload(PNG)
    await harness.storage.blobs.delete(uploaded.blob_key)
    with capture_logs() as logged, pytest.raises(CorruptData):
        await harness.artifacts.read(OWNER, uploaded.artifact_id)
    assert logged[0]["event"] == "artifact.corrupt"


@pytest.mark.parametrize("current", [None, b"other", bytes(len(PNG))])
async def test_upload_replaces_a_corrupt_blob(harness: ArtifactHarness, current: bytes | None) -> None:
    uploaded = await harness.upload(PNG)
    if current is None:
        await harness.storage.blobs.delete(uploaded.blob_key)
    else:
        await harness.replace_blob(uploaded, current)
    assert (await harness.upload(PNG)).blob_key != uploaded.blob_key
    assert await harness.artifacts.read(OWNER, uploaded.artifact_id) == PNG
