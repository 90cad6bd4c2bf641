"""Artifacts on a folder and on a bucket: stored once, returned exactly or not at all, swept without references."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tracemalloc
from typing import TYPE_CHECKING, Any, cast

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from easel.core.artifact.artifact import START
from easel.core.principal import THE_OWNER, Principal
from easel.core.stream.payload_limit import OffloadedValue
from easel.errors import BadInput, CorruptData, NotFound, TooLarge, Unavailable
from easel.host.artifacts import MIN_GRACE_SECONDS, SWEEP_BATCH_SIZE, Artifacts
from easel.ids import OWNER, UserId
from easel.stores.blobs.bucket import PART_BYTES
from easel.stores.blobs.store import CHUNK, Blobs
from easel.stores.sqlite import SqliteDatabase, open_sqlite
from tests.requirements import case, rule
from tests.stores.test_blobs import Kept, aws, bucket, disk, kept, pieces, s3_server
from tests.support.artifacts import aged_key, id_of, offloaded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from easel.core.artifact.artifact import Artifact
    from tests.host.conftest import TurnableClock

# Fixtures: a folder, and a bucket behind a real HTTP server.
__all__ = ["aws", "bucket", "disk", "kept", "s3_server"]

LIMIT = 3 * PART_BYTES
DAY = 86_400.0
GRACE = 7 * DAY
OTHER = Principal(UserId("mallory"), "mallory")
PNG = b"\x89PNG\r\n\x1a\n" + bytes(200)


class FaultyBlobs:
    """A real blob storage that runs a hook before one kind of call."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self.before: dict[str, Callable[[str], Awaitable[None]]] = {}
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        original = getattr(self._blobs, name)
        if name == "list":
            return original

        async def call(key: str, *args: Any, **options: Any) -> Any:
            self.calls.append(name)
            if (hook := self.before.get(name)) is not None:
                await hook(key)
            return await original(key, *args, **options)

        return call

    def fail_on(self, name: str) -> None:
        async def fail(_: str) -> None:
            raise Unavailable(what="The blob store")

        self.before[name] = fail


class RunHarness:
    def __init__(self, database: SqliteDatabase, place: Kept, clock: TurnableClock) -> None:
        self.database = database
        self.storage = storage
        self.clock = clock
        self.blobs = FaultyBlobs(storage.blobs)
        self.artifacts = Artifacts(
            database.artifacts, cast(Blobs, self.blobs), max_bytes=LIMIT, grace_seconds=GRACE
        )

    async def sql(self, text: str) -> list[dict[str, Any]]:
        return await self.database.write(
            lambda connection: [dict(row) for row in connection.execute(text).fetchall()]
        )

    async def upload(self, content: bytes, declared: str = "", principal: Principal = THE_OWNER) -> Artifact:
        return await self.artifacts.upload(principal, pieces(content), declared)

    async def replace_blob(self, artifact: Artifact, content: bytes) -> None:
        await self.storage.blobs.delete(artifact.blob_key)
        await self.storage.blobs.put(artifact.blob_key, content)

    async def row(self, content: bytes) -> Artifact | None:
        return await self.database.artifacts.get(OWNER, id_of(content))


@pytest_asyncio.fixture
async def harness(tmp_path: Path, kept: Kept, clock: TurnableClock) -> AsyncIterator[RunHarness]:
    database = await open_sqlite(tmp_path / "easel.db", clock=clock, synchronous="normal")
    await database.migrate()
    opened = RunHarness(database, kept, clock)
    await opened.sql("insert into users (user_id, name) values ('mallory', 'mallory')")
    yield harness
    await database.close()


# --- offloaded values ---------------------------------------------------------------------------------------


async def test_media_type_of_an_offloaded_value(at: RunHarness) -> None:
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
async def test_stored_value_is_read_back_exactly(at: RunHarness) -> None:
    contents = [b"a", "Grüße".encode(), bytes(range(256)) * 40]
    await harness.artifacts.store(OWNER, offloaded(*contents))
    for content in contents:
        assert await harness.artifacts.read(OWNER, id_of(content)) == content
    with pytest.raises(NotFound):
        await harness.artifacts.find(OTHER, id_of(b"a"))


async def test_equal_content_is_stored_once_per_user(at: RunHarness) -> None:
    await harness.artifacts.store(OWNER, offloaded(b"a", b"b", b"a"))
    await harness.artifacts.store(OWNER, offloaded(b"b", b"a"))
    assert harness.blobs.calls.count("put") == 2
    assert len(harness.storage.everything()) == 2
    await harness.artifacts.store(OTHER.user_id, offloaded(b"a"))
    assert len(harness.storage.everything()) == 3, "users do not share blobs"
    await harness.artifacts.store(OWNER, [])


async def test_concurrent_stores_of_equal_content_write_it_once(at: RunHarness) -> None:
    contents = [b"%d" % n for n in range(5)]
    await asyncio.gather(*(harness.artifacts.store(OWNER, offloaded(*contents)) for _ in range(8)))
    assert len(harness.storage.everything()) == 5
    assert len(await harness.sql("select 1 from artifacts where is_stored")) == 5


async def test_unavailable_blob_storage_stores_nothing_and_a_retry_succeeds(at: RunHarness) -> None:
    harness.blobs.fail_on("put")
    with pytest.raises(Unavailable):
        await harness.artifacts.store(OWNER, offloaded(b"a", b"b"))
    assert await harness.row(b"a") is None
    harness.blobs.before.clear()
    await harness.artifacts.store(OWNER, offloaded(b"a", b"b"))
    assert await harness.artifacts.read(OWNER, id_of(b"a")) == b"a"


@case("D7")
async def test_store_starts_again_if_its_row_was_swept(at: RunHarness) -> None:
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


@pytest.mark.parametrize("size", [1, CHUNK + 1, PART_BYTES + 1])
@rule("CC-24")
async def test_upload_is_named_by_its_digest(at: RunHarness, size: int) -> None:
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


async def test_upload_detects_the_media_type(at: RunHarness) -> None:
    assert (await harness.upload(PNG, "text/html")).media_type == "image/png"
    assert (await harness.upload(b"<script>alert(1)</script>", "image/png")).media_type == "text/html"
    assert (
        await harness.artifacts.upload(THE_OWNER, pieces(PNG + b"in single bytes", 1), "")
    ).media_type == "image/png"


async def test_equal_upload_returns_the_existing_artifact(at: RunHarness) -> None:
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


async def test_oversized_upload_is_refused_early_and_stores_nothing(at: RunHarness) -> None:
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


async def test_empty_upload_is_refused(at: RunHarness) -> None:
    with pytest.raises(BadInput):
        await harness.upload(b"")
    assert harness.storage.everything() == []


@pytest.mark.parametrize("after", [10, PART_BYTES + 10])
async def test_interrupted_upload_stores_nothing(at: RunHarness, after: int) -> None:
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
    at: RunHarness, monkeypatch: pytest.MonkeyPatch
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
async def test_upload_whose_row_was_swept_is_refused(at: RunHarness) -> None:
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
async def test_wrong_clock_of_this_machine_does_not_affect_artifacts(at: RunHarness, hours: int) -> None:
    """Only the clock of the database is used."""
    harness.clock.ahead = hours * 3600
    uploaded = await harness.upload(PNG)
    await harness.artifacts.store(OWNER, offloaded(b"a", PNG))
    assert await harness.artifacts.sweep() == 0
    assert await harness.artifacts.read(OWNER, uploaded.artifact_id) == PNG
    assert await harness.artifacts.read(OWNER, id_of(b"a")) == b"a"


async def test_large_upload_is_streamed(at: RunHarness, kept: Kept) -> None:
    artifacts = Artifacts(
        harness.database.artifacts, harness.storage.blobs, max_bytes=100_000_000, grace_seconds=GRACE
    )
    piece = os.urandom(65_536)

    async def large() -> AsyncIterator[bytes]:
        for _ in range(640):
            yield piece

    if kept.url.startswith("s3"):
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


@pytest.mark.parametrize(
    "name", ["x", "art_", "art_" + "0" * 64, "ART_" + "0" * 64, "art_" + "0" * 63 + "\n", "../../easel.db"]
)
async def test_unknown_artifact_is_not_found(at: RunHarness, name: str) -> None:
    with pytest.raises(NotFound):
        await harness.artifacts.find(THE_OWNER, name)


async def test_what_is_anothers_is_not_there(at: RunHarness) -> None:
    theirs = await harness.upload(PNG, principal=OTHER)
    with pytest.raises(NotFound):
        await harness.artifacts.find(THE_OWNER, theirs.artifact_id)


@pytest.mark.parametrize("start, end", [(0, None), (CHUNK - 1, CHUNK + 1), (5, None), (0, 2 * CHUNK + 7)])
async def test_range_is_read_like_a_slice(at: RunHarness, start: int, end: int | None) -> None:
    content = os.urandom(2 * CHUNK + 7)
    uploaded = await harness.upload(content)
    assert (
        b"".join([chunk async for chunk in await harness.artifacts.open(uploaded, start, end)])
        == content[start:end]
    )


async def collect(chunks: AsyncIterator[bytes], into: list[bytes]) -> None:
    async for chunk in chunks:
        into.append(chunk)  # noqa: PERF401 - keeps the chunks before a failure


CONTENT = bytes(range(256)) * 3 * (CHUNK // 256)
CORRUPTIONS = [
    ("one bit", b"\x01" + CONTENT[1:]),
    ("the last byte", CONTENT[:-1] + b"\x00"),
    ("half of it", CONTENT[: len(CONTENT) // 2]),
    ("nothing", b""),
    ("something more", CONTENT + b"\x00"),
    ("much more", CONTENT * 2),
]


@pytest.mark.parametrize("name, current", CORRUPTIONS, ids=[row[0] for row in CORRUPTIONS])
@case("D7")
async def test_corrupt_blob_is_reported_and_never_returned(at: RunHarness, name: str, current: bytes) -> None:
    uploaded = await harness.upload(CONTENT)
    await harness.replace_blob(uploaded, current)
    with capture_logs() as logged, pytest.raises(CorruptData):
        await harness.artifacts.read(OWNER, uploaded.artifact_id)
    assert [(line["event"], line["log_level"], line["artifact_id"]) for line in logged] == [
        ("artifact.corrupt", "error", uploaded.artifact_id)
    ]
    sent = list[bytes]()
    with pytest.raises(CorruptData):
        await collect(await harness.artifacts.open(uploaded), sent)
    assert sum(map(len, sent)) < uploaded.size, "the last chunk is held back"


async def test_missing_blob_is_reported_as_corrupt(at: RunHarness) -> None:
    uploaded = await harness.upload(PNG)
    await harness.storage.blobs.delete(uploaded.blob_key)
    with capture_logs() as logged, pytest.raises(CorruptData):
        await harness.artifacts.read(OWNER, uploaded.artifact_id)
    assert logged[0]["event"] == "artifact.corrupt"


@pytest.mark.parametrize("current", [None, b"other", bytes(len(PNG))])
async def test_upload_replaces_a_corrupt_blob(at: RunHarness, current: bytes | None) -> None:
    uploaded = await harness.upload(PNG)
    if current is None:
        await harness.storage.blobs.delete(uploaded.blob_key)
    else:
        await harness.replace_blob(uploaded, current)
    assert (await harness.upload(PNG)).blob_key != uploaded.blob_key
    assert await harness.artifacts.read(OWNER, uploaded.artifact_id) == PNG


# --- sweeping -----------------------------------------------------------------------------------------------


async def test_unreferenced_artifact_is_swept_after_the_grace_period(at: RunHarness) -> None:
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


async def test_referenced_artifact_is_not_swept(at: RunHarness) -> None:
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
async def test_old_blob_without_a_row_is_swept(at: RunHarness) -> None:
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
async def test_interrupted_sweep_is_completed_by_the_next(at: RunHarness) -> None:
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


async def test_sweep_takes_several_batches(at: RunHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("easel.host.artifacts.SWEEP_BATCH_SIZE", 3)
    assert SWEEP_BATCH_SIZE > 3
    await harness.artifacts.store(OWNER, offloaded(*(b"%d" % n for n in range(7))))
    for _ in range(7):
        await harness.storage.blobs.put(aged_key(GRACE + 60), b"x")
    harness.clock.ahead = GRACE + 60
    assert await harness.artifacts.sweep() == 14
    assert harness.storage.everything() == []


async def test_grace_period_is_at_least_an_hour(at: RunHarness) -> None:
    artifacts = Artifacts(harness.database.artifacts, harness.storage.blobs, max_bytes=LIMIT, grace_seconds=0)
    await harness.upload(PNG)
    harness.clock.ahead = MIN_GRACE_SECONDS - 60
    assert await artifacts.sweep() == 0
    harness.clock.ahead = MIN_GRACE_SECONDS + 60
    assert await artifacts.sweep() == 1


async def test_concurrent_sweeps_are_safe(at: RunHarness) -> None:
    await harness.artifacts.store(OWNER, offloaded(*(b"%d" % n for n in range(20))))
    harness.clock.ahead = GRACE + 60
    swept = await asyncio.gather(*(harness.artifacts.sweep() for _ in range(4)))
    assert sum(swept) >= 20
    assert harness.storage.everything() == []
    assert (await harness.database.artifacts.sweep(START, GRACE, 100)).blob_keys == []
