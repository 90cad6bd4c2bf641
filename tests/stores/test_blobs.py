"""Blobs: one contract for a folder and a bucket behind a real HTTP server, then the faults of each."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from easel.errors import BadInput, NotFound, TooLarge
from easel.stores.blobs.bucket import PART_BYTES
from easel.stores.blobs.store import CHUNK_BYTES, STAGING, Blobs, check_key, is_key, open_blobs
from tests.stores.blob_locations import LARGE, TIMEOUT_SECONDS, BlobLocation, list_keys, pieces
from tests.support.length import examples

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


# All examples of a test share one location.
MANY = settings(
    max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


# --- put and get --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, PART_BYTES, PART_BYTES + 1, LARGE])
@pytest.mark.parametrize("streamed", [False, True])
async def test_blob_is_read_back_unchanged(blobs: Blobs, size: int, streamed: bool) -> None:
    data = os.urandom(size)
    assert await blobs.put("accounts/u1/a file, é", pieces(data) if streamed else data) == size
    assert await blobs.get("accounts/u1/a file, é") == data
    assert await blobs.size("accounts/u1/a file, é") == size


@pytest.mark.parametrize("size", [3, LARGE])
async def test_existing_blob_is_not_replaced(location: BlobLocation, size: int) -> None:
    await location.blobs.put("sha256/abc", b"first")
    assert await location.blobs.put("sha256/abc", os.urandom(size)) == len(b"first")
    assert await location.blobs.put("sha256/abc", pieces(os.urandom(size))) == len(b"first")
    assert await location.blobs.get("sha256/abc") == b"first"
    assert location.everything() == ["sha256/abc"]


@pytest.mark.parametrize("writers, size", [(50, 100), (4, PART_BYTES + 1)])
async def test_concurrent_puts_of_one_key_store_one_complete_blob(
    location: BlobLocation, writers: int, size: int
) -> None:
    together = asyncio.Barrier(writers)

    async def delayed(data: bytes) -> AsyncIterator[bytes]:
        await together.wait()  # all have found the key free
        yield data

    candidates = [bytes([number]) * (size + number) for number in range(writers)]
    async with asyncio.timeout(TIMEOUT_SECONDS):
        sizes = await asyncio.gather(*(location.blobs.put("one/key", delayed(data)) for data in candidates))
    winner = await location.blobs.get("one/key")
    assert winner in candidates
    assert sizes == [len(winner)] * writers
    assert location.everything() == ["one/key"]


async def test_two_processes_share_one_location(location: BlobLocation) -> None:
    other = open_blobs(location.url)
    await location.blobs.put("a", b"one")
    assert await other.put("a", b"two") == 3
    assert await other.get("a") == b"one"


@pytest.mark.slow
async def test_large_blob_is_stored_and_read_with_little_memory(location: BlobLocation) -> None:
    script = """
import asyncio, hashlib, psutil, sys
from easel.stores.blobs.store import open_blobs

sent, found, used = hashlib.sha256(), hashlib.sha256(), []

def measure():
    used.append(psutil.Process().memory_info().rss >> 20)

async def large_source():
    for number in range(64):
        piece = number.to_bytes(4, "big") * 262_144
        sent.update(piece)
        measure()
        yield piece

async def main():
    blobs = open_blobs(sys.argv[1])
    await blobs.check()
    measure()
    assert await blobs.put("much", large_source()) == 64 << 20
    async for chunk in await blobs.read("much"):
        found.update(chunk)
        measure()
    assert sent.digest() == found.digest()
    print(max(used) - used[0])

asyncio.run(main())
"""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", script, location.url],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 48, "megabytes, for a blob of 64"


# --- failed puts store nothing --------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 10, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, LARGE])
async def test_blob_over_the_limit_is_refused_and_not_stored(location: BlobLocation, limit: int) -> None:
    for data in (bytes(limit + 1), pieces(bytes(limit + 1))):
        with pytest.raises(TooLarge, match=str(limit)):
            await location.blobs.put("k", data, size_limit=limit)
    assert location.everything() == []
    assert await location.blobs.put("k", pieces(bytes(limit)), size_limit=limit) == limit


async def test_endless_stream_is_read_up_to_the_limit(blobs: Blobs) -> None:
    sent_bytes = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent_bytes
        while True:
            sent_bytes += 1000
            yield bytes(1000)

    with pytest.raises(TooLarge):
        await blobs.put("k", endless(), size_limit=10_000)
    assert sent_bytes == 11_000


@pytest.mark.parametrize("size", [0, 1000, LARGE])
@pytest.mark.parametrize(
    "failure", [ConnectionResetError("the client went away"), ValueError("not a picture")]
)
async def test_failing_source_raises_its_error_and_leaves_no_file(
    location: BlobLocation, size: int, failure: Exception
) -> None:
    async def failing() -> AsyncIterator[bytes]:
        async for piece in pieces(bytes(size)):
            yield piece
        raise failure

    with pytest.raises(type(failure), match=str(failure)):
        await location.blobs.put("k", failing())
    assert location.everything() == []


@pytest.mark.parametrize("size", [0, 1000, LARGE])
async def test_cancelled_put_leaves_no_file(location: BlobLocation, size: int) -> None:
    drained = asyncio.Event()

    async def stalled() -> AsyncIterator[bytes]:
        async for piece in pieces(bytes(size)):
            yield piece
        drained.set()
        await asyncio.get_running_loop().create_future()

    putting = asyncio.create_task(location.blobs.put("k", stalled()))
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await drained.wait()
        putting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await putting
    assert location.everything() == []
    assert await location.blobs.put("k", b"again") == 5


# --- reading ------------------------------------------------------------------------------------------------


async def test_large_blob_is_read_in_small_chunks(blobs: Blobs) -> None:
    data = os.urandom(LARGE)
    await blobs.put("k", data)
    chunks = [chunk async for chunk in await blobs.read("k")]
    assert b"".join(chunks) == data
    assert all(0 < len(chunk) <= CHUNK_BYTES for chunk in chunks)


RANGED = bytes(range(256)) * 2500  # a few chunks


@MANY
@given(start=st.integers(0, len(RANGED) + 10), end=st.none() | st.integers(0, len(RANGED) + 10))
@example(start=0, end=0)
@example(start=len(RANGED), end=None)
@example(start=7, end=3)
@example(start=CHUNK_BYTES - 1, end=2 * CHUNK_BYTES + 1)
async def test_range_is_read_like_a_slice(blobs: Blobs, start: int, end: int | None) -> None:
    await blobs.put("ranged", RANGED)
    chunks = [chunk async for chunk in await blobs.read("ranged", start, end)]
    assert b"".join(chunks) == RANGED[start:end]
    assert all(0 < len(chunk) <= CHUNK_BYTES for chunk in chunks)


async def test_range_of_an_empty_blob_is_empty(blobs: Blobs) -> None:
    await blobs.put("empty", b"")
    for start, end in [(0, None), (0, 0), (0, 5), (3, None)]:
        assert [chunk async for chunk in await blobs.read("empty", start, end)] == []


@pytest.mark.parametrize("start, end", [(-1, None), (0, -1)])
async def test_negative_range_is_refused(blobs: Blobs, start: int, end: int | None) -> None:
    await blobs.put("k", b"abc")
    with pytest.raises(BadInput, match="range"):
        await blobs.read("k", start, end)


async def test_missing_blob_is_not_found_before_the_first_chunk(blobs: Blobs) -> None:
    await blobs.put("there/is/one", b"x")
    for key in ("missing", "there/is", "there/is/one/below"):
        with pytest.raises(NotFound, match=key):
            await blobs.get(key)
        for start, end in [(0, None), (0, 0), (5, None), (5, 9)]:
            with pytest.raises(NotFound, match=key):
                await blobs.read(key, start, end)
        assert await blobs.size(key) is None


# --- deleting and listing -----------------------------------------------------------------------------------


async def test_deleted_blob_can_be_stored_again(location: BlobLocation) -> None:
    await location.blobs.put("a/b/c", b"old")
    await location.blobs.delete("a/b/c")
    await location.blobs.delete("a/b/c")
    await location.blobs.delete("never/was")
    assert await location.blobs.size("a/b/c") is None
    assert location.everything() == []
    await location.blobs.put("a/b/c", b"new")
    assert await location.blobs.get("a/b/c") == b"new"
    await location.blobs.delete("a/b/c")
    assert await location.blobs.put("a/b", b"where a folder was") == 18


async def test_list_returns_the_keys_below_a_folder(blobs: Blobs) -> None:
    keys = {"a", "b/c", "b/cc/d", "b/c.txt", "bb/c", *(f"many/{number:03}" for number in range(120))}
    for key in keys:
        await blobs.put(key, b"")
    assert await list_keys(blobs) == sorted(keys)
    assert await list_keys(blobs, "b") == await list_keys(blobs, "b/") == ["b/c", "b/c.txt", "b/cc/d"]
    assert await list_keys(blobs, "b/cc") == ["b/cc/d"]
    assert len(await list_keys(blobs, "many")) == 120
    assert await list_keys(blobs, "a") == await list_keys(blobs, "nothing/here") == []


@pytest.mark.slow
async def test_concurrent_puts_and_deletes_in_one_folder_succeed(location: BlobLocation) -> None:
    """A delete removes folders that it emptied while other puts are about to write into them."""

    async def put_and_delete(number: int) -> None:
        for turn in range(10):
            await location.blobs.put(f"one/shared/folder/{number}", bytes(turn))
            assert await location.blobs.size(f"one/shared/folder/{number}") == turn
            await location.blobs.delete(f"one/shared/folder/{number}")

    async with asyncio.timeout(TIMEOUT_SECONDS):
        await asyncio.gather(*(put_and_delete(number) for number in range(10)))
    assert location.everything() == []


# --- keys ---------------------------------------------------------------------------------------------------

UNSAFE_KEYS = [
    "",
    "/",
    "/etc/passwd",
    "a/",
    "a//b",
    ".",
    "..",
    "../x",
    "a/../b",
    "a/./b",
    "a/..",
    "a\\b",
    "..\\x",
    "C:\\x",
    "nul\0",
    "a\nb",
]
UNSAFE_KEYS += [
    "\x7f",
    "\x85",
    "\ud800",
    "\uffff",
    "é" * 128,
    "x" * 256,
    "/".join(["x" * 200] * 6),
    STAGING,
    f"{STAGING}/x",
]


@pytest.mark.parametrize("key", UNSAFE_KEYS)
async def test_unsafe_key_is_refused_by_every_operation(location: BlobLocation, key: str) -> None:
    blobs = location.blobs
    operations = [
        blobs.put(key, b""),
        blobs.put(key, pieces(b"x")),
        blobs.get(key),
        blobs.read(key),
        blobs.size(key),
        blobs.delete(key),
    ]
    for operation in operations:
        with pytest.raises(BadInput):
            await operation
    if key not in {"", "a/"}:  # a folder may end with a slash
        with pytest.raises(BadInput):
            await list_keys(blobs, key)
    assert location.everything() == []


SEGMENTS = st.sampled_from(
    [
        ".",
        "..",
        "",
        " ",
        "...",
        "~",
        "%2e%2e",
        "%2F",
        "a\\b",
        "nul\0",
        STAGING,
        "é",
        "👩‍🎨",
        "#1",
        "?x",
        "a+b",
        "$(x)",
        "-rf",
    ]
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(SEGMENTS | st.text(max_size=20), max_size=8).map("/".join) | st.text())
def test_accepted_key_stays_under_the_root(key: str) -> None:
    if is_key(key):
        assert check_key(key) == key
        assert len(key.encode()) <= 1024
        assert os.path.normpath(os.path.join("/top", key)) == f"/top/{key}"  # noqa: PTH118
        assert not key.startswith(f"{STAGING}/")


@MANY
@given(
    key=(st.lists(SEGMENTS | st.text(min_size=1, max_size=20), min_size=1, max_size=5).map("/".join)).filter(
        is_key
    )
)
@example(key="/".join(["é" * 100] * 5))
@example(key="a%2Fb/c%00/%")
@example(key="x#1")
async def test_accepted_key_is_stored_unchanged(blobs: Blobs, key: str) -> None:
    await blobs.put(key, key.encode())
    assert await blobs.get(key) == key.encode()
    assert await list_keys(blobs) == [key]
    await blobs.delete(key)
    assert await list_keys(blobs) == []


# --- staged blobs -------------------------------------------------------------------------------------------


async def test_staged_blob_of_a_crashed_process_is_not_listed_and_is_swept_when_old(
    location: BlobLocation, disk: BlobLocation, aws: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if location is disk:
        (tmp_path / "blobs" / STAGING).mkdir()
        (tmp_path / "blobs" / STAGING / "half").write_bytes(b"ha")
    else:
        name = location.url.removeprefix("s3://").partition("/")[0]
        aws.put_object(Bucket=name, Key=f"some/prefix/{STAGING}/half", Body=b"ha")
    await location.blobs.put("whole", b"whole")
    assert sorted(location.everything()) == [f"{STAGING}/half", "whole"], (
        "a new staged blob may still be written"
    )
    assert await list_keys(location.blobs) == ["whole"]
    assert await location.blobs.sweep() == 0
    monkeypatch.setattr("easel.stores.blobs.store.STALE", timedelta(seconds=-10))
    await open_blobs(location.url).put("another", b"")
    assert sorted(location.everything()) == ["another", "whole"]
    assert await location.blobs.sweep() == 0
