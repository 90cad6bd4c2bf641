"""Artifacts, over a folder and over a bucket: kept once, given back exactly or not at all, swept when nothing refers to them."""

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
from easel.stores.blobs.bucket import PART
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

__all__ = [
    "aws",
    "bucket",
    "disk",
    "kept",
    "s3_server",
]  # fixtures: a folder, and a bucket behind a real HTTP server

LIMIT = 3 * PART
DAY = 86_400.0
GRACE = 7 * DAY
OTHER = Principal(UserId("mallory"), "mallory")
PNG = b"\x89PNG\r\n\x1a\n" + bytes(200)


class Faulty:
    """A real place for blobs in which something happens in front of or after one kind of call."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self.before: dict[str, Callable[[str], Awaitable[None]]] = {}
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        ordinary = getattr(self._blobs, name)
        if name == "list":
            return ordinary

        async def call(key: str, *args: Any, **how: Any) -> Any:
            self.calls.append(name)
            if (happen := self.before.get(name)) is not None:
                await happen(key)
            return await ordinary(key, *args, **how)

        return call

    def fails(self, name: str) -> None:
        async def fail(_: str) -> None:
            raise Unavailable(what="The blob store")

        self.before[name] = fail


class Bench:
    def __init__(self, database: SqliteDatabase, place: Kept, clock: TurnableClock) -> None:
        self.database = database
        self.place = place
        self.clock = clock
        self.blobs = Faulty(place.blobs)
        self.story = Artifacts(
            database.artifacts, cast(Blobs, self.blobs), max_bytes=LIMIT, grace_seconds=GRACE
        )

    async def sql(self, text: str) -> list[dict[str, Any]]:
        return await self.database.write(
            lambda connection: [dict(row) for row in connection.execute(text).fetchall()]
        )

    async def upload(self, content: bytes, declared: str = "", principal: Principal = THE_OWNER) -> Artifact:
        return await self.story.upload(principal, pieces(content), declared)

    async def spoil(self, artifact: Artifact, content: bytes) -> None:
        await self.place.blobs.delete(artifact.blob_key)
        await self.place.blobs.put(artifact.blob_key, content)

    async def row(self, content: bytes) -> Artifact | None:
        return await self.database.artifacts.get(OWNER, id_of(content))


@pytest_asyncio.fixture
async def at(tmp_path: Path, kept: Kept, clock: TurnableClock) -> AsyncIterator[Bench]:
    database = await open_sqlite(tmp_path / "easel.db", clock=clock, synchronous="normal")
    await database.migrate()
    opened = Bench(database, kept, clock)
    await opened.sql("insert into users (user_id, name) values ('mallory', 'mallory')")
    yield opened
    await database.close()


# --- keeping what was too heavy for a log -----------------------------------------------------------------------------


async def test_a_kept_value_is_named_by_its_bytes_and_closer_by_who_moved_it(at: Bench) -> None:
    await at.story.store(
        OWNER,
        [OffloadedValue(id_of(b'{"a":1}'), b'{"a":1}', "application/json"), *offloaded(b"[1]", b"<script>")],
    )
    types = {
        row["artifact_id"]: row["media_type"]
        for row in await at.sql("select artifact_id, media_type from artifacts")
    }
    assert types == {
        id_of(b'{"a":1}'): "application/json",
        id_of(b"[1]"): "text/plain",
        id_of(b"<script>"): "text/html",
    }


@rule("CC-24")
async def test_what_is_kept_comes_back_exactly(at: Bench) -> None:
    contents = [b"a", "Grüße".encode(), bytes(range(256)) * 40]
    await at.story.store(OWNER, offloaded(*contents))
    for content in contents:
        assert await at.story.read(OWNER, id_of(content)) == content
    with pytest.raises(NotFound):
        await at.story.read(OTHER.user_id, id_of(b"a"))


async def test_the_same_content_is_kept_once_however_often_it_comes(at: Bench) -> None:
    await at.story.store(OWNER, offloaded(b"a", b"b", b"a"))
    await at.story.store(OWNER, offloaded(b"b", b"a"))
    assert at.blobs.calls.count("put") == 2
    assert len(at.place.everything()) == 2
    await at.story.store(OTHER.user_id, offloaded(b"a"))
    assert len(at.place.everything()) == 3, "users share nothing, not even blobs"
    await at.story.store(OWNER, [])


async def test_many_that_keep_the_same_at_once_make_one(at: Bench) -> None:
    contents = [b"%d" % n for n in range(5)]
    await asyncio.gather(*(at.story.store(OWNER, offloaded(*contents)) for _ in range(8)))
    assert len(at.place.everything()) == 5
    assert len(await at.sql("select 1 from artifacts where is_stored")) == 5


async def test_a_place_that_is_away_keeps_nothing_and_the_next_attempt_does(at: Bench) -> None:
    at.blobs.fails("put")
    with pytest.raises(Unavailable):
        await at.story.store(OWNER, offloaded(b"a", b"b"))
    assert await at.row(b"a") is None
    at.blobs.before.clear()
    await at.story.store(OWNER, offloaded(b"a", b"b"))
    assert await at.story.read(OWNER, id_of(b"a")) == b"a"


@case("D7")
async def test_who_slept_until_the_row_was_swept_begins_again(at: Bench) -> None:
    """The blob goes up under a row that is gone: its key must not be relied on, and is swept away later."""

    async def sleep_long(_: str) -> None:
        at.blobs.before.clear()
        at.clock.ahead += GRACE + 60
        assert await at.story.sweep() == 1
        at.clock.ahead -= (
            GRACE + 60
        )  # the sweeper's machine is right and this one's wakes up: only the row is gone

    at.blobs.before["put"] = sleep_long
    await at.story.store(OWNER, offloaded(b"a"))
    assert await at.story.read(OWNER, id_of(b"a")) == b"a"
    assert len(at.place.everything()) == 2
    at.clock.ahead += GRACE + 60
    await at.story.store(OWNER, offloaded(b"a"))
    assert await at.story.sweep() == 1
    assert [
        row["blob_key"] for row in await at.sql("select blob_key from artifacts")
    ] == at.place.everything()


# --- uploads ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, CHUNK + 1, PART + 1])
@rule("CC-24")
async def test_an_upload_is_named_by_its_bytes(at: Bench, size: int) -> None:
    content = os.urandom(size)
    made = await at.upload(content)
    assert (made.artifact_id, made.size, made.sha256) == (
        id_of(content),
        size,
        hashlib.sha256(content).hexdigest(),
    )
    assert made.uri == f"/api/artifacts/{made.artifact_id}"
    assert made.is_new
    assert made.is_stored
    assert await at.story.read(OWNER, made.artifact_id) == content
    assert at.place.everything() == [made.blob_key]


async def test_the_bytes_and_not_the_sender_say_what_it_is(at: Bench) -> None:
    assert (await at.upload(PNG, "text/html")).media_type == "image/png"
    assert (await at.upload(b"<script>alert(1)</script>", "image/png")).media_type == "text/html"
    assert (
        await at.story.upload(THE_OWNER, pieces(PNG + b"in single bytes", 1), "")
    ).media_type == "image/png"


async def test_the_same_bytes_again_are_answered_and_not_kept_twice(at: Bench) -> None:
    first = await at.upload(PNG)
    again = await at.upload(PNG)
    assert not again.is_new
    assert again.blob_key == first.blob_key
    assert at.place.everything() == [first.blob_key]
    await at.story.store(OWNER, offloaded(PNG))
    assert at.place.everything() == [first.blob_key]
    theirs = await at.upload(PNG, principal=OTHER)
    assert theirs.is_new
    assert len(at.place.everything()) == 2


async def test_what_is_too_large_is_refused_as_soon_as_it_is_and_leaves_nothing(at: Bench) -> None:
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        while True:
            read += 65_536
            yield bytes(65_536)

    with pytest.raises(TooLarge):
        await at.story.upload(THE_OWNER, endless(), "")
    assert read <= LIMIT + 65_536
    assert at.place.everything() == []
    assert await at.sql("select 1 from artifacts") == []
    assert (await at.upload(bytes(LIMIT))).size == LIMIT


async def test_nothing_is_no_artifact(at: Bench) -> None:
    with pytest.raises(BadInput):
        await at.upload(b"")
    assert at.place.everything() == []


@pytest.mark.parametrize("after", [10, PART + 10])
async def test_an_upload_that_breaks_off_leaves_nothing(at: Bench, after: int) -> None:
    async def broken() -> AsyncIterator[bytes]:
        async for piece in pieces(bytes(after)):
            yield piece
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await at.story.upload(THE_OWNER, broken(), "")
    assert at.place.everything() == []
    assert await at.sql("select 1 from artifacts") == []


@case("D7")
async def test_an_answer_that_was_lost_costs_no_blob(at: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row was stored although we never heard so: removing "our" blob would leave the row without one."""
    ordinary = at.database.artifacts.complete_upload

    async def lose_the_answer(*args: Any, **how: Any) -> Any:
        await ordinary(*args, **how)
        raise Unavailable(what="The database")

    monkeypatch.setattr(at.database.artifacts, "complete_upload", lose_the_answer)
    with pytest.raises(Unavailable):
        await at.upload(PNG)
    assert await at.story.read(OWNER, id_of(PNG)) == PNG


@case("D7")
async def test_an_upload_whose_process_slept_until_it_was_swept_is_refused(at: Bench) -> None:
    """Its blob may be in the hands of a sweep by then."""

    async def dozing() -> AsyncIterator[bytes]:
        yield PNG
        at.clock.ahead = GRACE + 60
        assert await at.story.sweep() == 1
        at.clock.ahead = 0

    with pytest.raises(Unavailable):
        await at.story.upload(THE_OWNER, dozing(), "")
    assert await at.sql("select 1 from artifacts") == []
    at.clock.ahead = GRACE + 60
    assert await at.story.sweep() == 1
    assert at.place.everything() == []


@pytest.mark.parametrize("hours", [-24, 24])
async def test_a_machine_whose_clock_is_wrong_keeps_and_uploads_like_any_other(at: Bench, hours: int) -> None:
    """Only the database's clock decides, and no two clocks are compared where it matters."""
    at.clock.ahead = hours * 3600
    made = await at.upload(PNG)
    await at.story.store(OWNER, offloaded(b"a", PNG))
    assert await at.story.sweep() == 0
    assert await at.story.read(OWNER, made.artifact_id) == PNG
    assert await at.story.read(OWNER, id_of(b"a")) == b"a"


async def test_a_large_upload_is_never_in_memory_as_a_whole(at: Bench, kept: Kept) -> None:
    story = Artifacts(at.database.artifacts, at.place.blobs, max_bytes=100_000_000, grace_seconds=GRACE)
    piece = os.urandom(65_536)

    async def large() -> AsyncIterator[bytes]:
        for _ in range(640):
            yield piece

    if kept.url.startswith("s3"):
        return  # the server that stands in for S3 lives in this process and keeps everything in memory
    tracemalloc.start()
    try:
        made = await story.upload(THE_OWNER, large(), "")
        async for _ in await story.open(made):
            pass
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()
    assert made.size == 640 * 65_536


# --- giving back ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["x", "art_", "art_" + "0" * 64, "ART_" + "0" * 64, "art_" + "0" * 63 + "\n", "../../easel.db"]
)
async def test_what_is_not_there_is_not_found(at: Bench, name: str) -> None:
    with pytest.raises(NotFound):
        await at.story.find(THE_OWNER, name)


async def test_what_is_anothers_is_not_there(at: Bench) -> None:
    theirs = await at.upload(PNG, principal=OTHER)
    with pytest.raises(NotFound):
        await at.story.find(THE_OWNER, theirs.artifact_id)


@pytest.mark.parametrize(
    "start, end", [(0, 1), (0, None), (1, 2), (CHUNK - 1, CHUNK + 1), (5, None), (0, 2 * CHUNK + 7)]
)
async def test_a_range_is_what_a_slice_is(at: Bench, start: int, end: int | None) -> None:
    content = os.urandom(2 * CHUNK + 7)
    made = await at.upload(content)
    assert b"".join([chunk async for chunk in await at.story.open(made, start, end)]) == content[start:end]


async def collect(chunks: AsyncIterator[bytes], into: list[bytes]) -> None:
    async for chunk in chunks:
        into.append(chunk)  # noqa: PERF401  what came before a failure counts


WHOLE = bytes(range(256)) * 3 * (CHUNK // 256)
DAMAGE = [
    ("one bit", b"\x01" + WHOLE[1:]),
    ("the last byte", WHOLE[:-1] + b"\x00"),
    ("half of it", WHOLE[: len(WHOLE) // 2]),
    ("nothing", b""),
    ("something more", WHOLE + b"\x00"),
    ("much more", WHOLE * 2),
]


@pytest.mark.parametrize("says, now_there", DAMAGE, ids=[row[0] for row in DAMAGE])
@case("D7")
async def test_bytes_that_are_not_those_that_were_kept_are_never_an_answer(
    at: Bench, says: str, now_there: bytes
) -> None:
    made = await at.upload(WHOLE)
    await at.spoil(made, now_there)
    with capture_logs() as logged, pytest.raises(CorruptData):
        await at.story.read(OWNER, made.artifact_id)
    assert [(line["event"], line["log_level"], line["artifact_id"]) for line in logged] == [
        ("artifact.damaged", "error", made.artifact_id)
    ]
    sent = list[bytes]()
    with pytest.raises(CorruptData):
        await collect(await at.story.open(made), sent)
    assert sum(map(len, sent)) < made.size, (
        "the reader must miss something, or it would take this for the whole"
    )


async def test_a_blob_that_is_gone_is_damage_and_not_a_404(at: Bench) -> None:
    made = await at.upload(PNG)
    await at.place.blobs.delete(made.blob_key)
    with capture_logs() as logged, pytest.raises(CorruptData):
        await at.story.read(OWNER, made.artifact_id)
    assert logged[0]["event"] == "artifact.damaged"


@pytest.mark.parametrize("now_there", [None, b"other", bytes(len(PNG))])
async def test_what_is_damaged_is_mended_by_uploading_it_again(at: Bench, now_there: bytes | None) -> None:
    made = await at.upload(PNG)
    if now_there is None:
        await at.place.blobs.delete(made.blob_key)
    else:
        await at.spoil(made, now_there)
    assert (await at.upload(PNG)).blob_key != made.blob_key
    assert await at.story.read(OWNER, made.artifact_id) == PNG


# --- sweeping ---------------------------------------------------------------------------------------------------------


async def test_what_nothing_refers_to_goes_after_its_grace_and_not_before(at: Bench) -> None:
    made = await at.upload(PNG)
    at.clock.ahead = GRACE - 60
    assert await at.story.sweep() == 0
    assert await at.story.read(OWNER, made.artifact_id) == PNG
    at.clock.ahead = GRACE + 60
    assert await at.story.sweep() == 1
    assert at.place.everything() == []
    assert await at.sql("select 1 from artifacts") == []
    with pytest.raises(NotFound):
        await at.story.find(THE_OWNER, made.artifact_id)
    assert await at.story.sweep() == 0


async def test_what_a_canvas_refers_to_stays(at: Bench) -> None:
    await at.sql(
        "insert into canvases (user_id, canvas_id, agent_id, title, spec, state) values ('owner', 'c', 'main', '', '{}', '{}')"
    )
    made = await at.upload(PNG)
    await at.sql(
        f"insert into artifact_refs (user_id, artifact_id, canvas_id) values ('owner', '{made.artifact_id}', 'c')"
    )
    at.clock.ahead = 10 * GRACE
    assert await at.story.sweep() == 0
    assert await at.story.read(OWNER, made.artifact_id) == PNG


@case("D7")
async def test_a_blob_that_no_row_knows_goes_when_it_is_old(at: Bench) -> None:
    old, young, of_nobody = (
        aged_key(GRACE + 60),
        aged_key(GRACE - 60),
        aged_key(GRACE + 60, UserId("long-gone")),
    )
    others = [
        "users/owner/agents/main/canvases/c/assets/index.html",
        "users/owner/artifacts/readme.txt",
        "elsewhere",
    ]
    for key in (old, young, of_nobody, *others):
        await at.place.blobs.put(key, b"x")
    made = await at.upload(PNG)
    assert await at.story.sweep() == 2
    assert sorted(at.place.everything()) == sorted([young, made.blob_key, *others])


@case("D7")
async def test_a_sweep_that_ends_between_row_and_blob_leaves_a_stray_for_the_next(at: Bench) -> None:
    made = await at.upload(PNG)
    at.clock.ahead = GRACE + 60
    at.blobs.fails("delete")
    with pytest.raises(Unavailable):
        await at.story.sweep()
    assert await at.sql("select 1 from artifacts") == [], (
        "the row goes first, so that nobody refers to what is half gone"
    )
    assert at.place.everything() == [made.blob_key]
    at.blobs.before.clear()
    assert await at.story.sweep() == 1
    assert at.place.everything() == []


async def test_a_sweep_goes_over_more_than_one_step_holds(at: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("easel.host.artifacts.SWEPT_AT_ONCE", 3)
    assert SWEEP_BATCH_SIZE > 3
    await at.story.store(OWNER, offloaded(*(b"%d" % n for n in range(7))))
    for _ in range(7):
        await at.place.blobs.put(aged_key(GRACE + 60), b"x")
    at.clock.ahead = GRACE + 60
    assert await at.story.sweep() == 14
    assert at.place.everything() == []


async def test_the_grace_is_an_hour_at_least(at: Bench) -> None:
    hasty = Artifacts(at.database.artifacts, at.place.blobs, max_bytes=LIMIT, grace_seconds=0)
    await at.upload(PNG)
    at.clock.ahead = MIN_GRACE_SECONDS - 60
    assert await hasty.sweep() == 0
    at.clock.ahead = MIN_GRACE_SECONDS + 60
    assert await hasty.sweep() == 1


async def test_several_sweeps_at_once_take_each_thing_once(at: Bench) -> None:
    await at.story.store(OWNER, offloaded(*(b"%d" % n for n in range(20))))
    at.clock.ahead = GRACE + 60
    swept = await asyncio.gather(*(at.story.sweep() for _ in range(4)))
    assert sum(swept) >= 20
    assert at.place.everything() == []
    assert (await at.database.artifacts.sweep(START, GRACE, 100)).blob_keys == []
