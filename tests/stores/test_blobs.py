"""Blobs: one contract, held by a folder on disk and by a bucket behind a real HTTP server; then what only one of them can suffer."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import boto3
import psutil
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from moto.server import ThreadedMotoServer

from easel.errors import BadInput, NotFound, TooLarge, Unavailable
from easel.stores.blobs.bucket import PART_BYTES
from easel.stores.blobs.store import CHUNK_BYTES, STAGING, Blobs, check_key, is_key, open_blobs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

SOON = 60  # seconds: nothing here takes so long, so a wait that does has failed
LARGE = 2 * PART_BYTES + 4321  # goes to S3 in parts

# The same place serves many examples: blobs are written once, so each example uses keys of its own.
MANY = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Kept:
    """Blobs, and a look behind them: everything that is really there, leftovers included."""

    def __init__(self, url: str, everything: Callable[[], list[str]]) -> None:
        self.url = url
        self.blobs = open_blobs(url)
        self.everything = everything


@pytest.fixture(scope="module")
def s3_server() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    assert server._server is not None
    # moto looks whether a key is free and takes it in two steps; a real bucket does it in one, and so must this one.
    answer, one_by_one = server._server.app, threading.Lock()

    def answer_one_by_one(environ: Any, start_response: Any) -> Any:
        with one_by_one:
            return answer(environ, start_response)

    server._server.app = answer_one_by_one
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()
    server._server.server_close()


@pytest.fixture
def aws(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    return boto3.client("s3", endpoint_url=s3_server)


@pytest.fixture
def bucket(aws: Any) -> Kept:
    name = f"bucket-{uuid4().hex}"
    aws.create_bucket(Bucket=name)

    def everything() -> list[str]:
        objects = [
            found["Key"].removeprefix("some/prefix/")
            for found in aws.list_objects_v2(Bucket=name).get("Contents", [])
        ]
        return objects + [
            f"upload of {found['Key']}"
            for found in aws.list_multipart_uploads(Bucket=name).get("Uploads", [])
        ]

    return Kept(f"s3://{name}/some/prefix", everything)


@pytest.fixture
def disk(tmp_path: Path) -> Kept:
    root = tmp_path / "blobs"
    return Kept(
        f"file://{root}",
        lambda: [str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()],
    )


@pytest.fixture(params=["disk", "bucket"])
def kept(request: pytest.FixtureRequest) -> Kept:
    return request.getfixturevalue(request.param)


@pytest.fixture
def blobs(kept: Kept) -> Blobs:
    return kept.blobs


async def pieces(data: bytes, size: int = 65_536) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def listed(blobs: Blobs, prefix: str = "") -> list[str]:
    return sorted([key async for key in blobs.list(prefix)])


# --- put and get ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, PART_BYTES, PART_BYTES + 1, LARGE])
@pytest.mark.parametrize("streamed", [False, True])
async def test_what_was_put_comes_back(blobs: Blobs, size: int, streamed: bool) -> None:
    data = os.urandom(size)
    assert await blobs.put("users/u1/a file, é", pieces(data) if streamed else data) == size
    assert await blobs.get("users/u1/a file, é") == data
    assert await blobs.size("users/u1/a file, é") == size


@pytest.mark.parametrize("size", [3, LARGE])
async def test_a_blob_that_is_there_stays_as_it_is(kept: Kept, size: int) -> None:
    await kept.blobs.put("sha256/abc", b"first")
    assert await kept.blobs.put("sha256/abc", os.urandom(size)) == len(b"first")
    assert await kept.blobs.put("sha256/abc", pieces(os.urandom(size))) == len(b"first")
    assert await kept.blobs.get("sha256/abc") == b"first"
    assert kept.everything() == ["sha256/abc"]


@pytest.mark.parametrize("writers, size", [(50, 100), (4, PART_BYTES + 1)])
async def test_of_many_that_put_one_key_at_once_one_wins_whole(kept: Kept, writers: int, size: int) -> None:
    together = asyncio.Barrier(writers)

    async def held_back(data: bytes) -> AsyncIterator[bytes]:
        await together.wait()  # everyone has seen that the key is free
        yield data

    candidates = [bytes([number]) * (size + number) for number in range(writers)]
    async with asyncio.timeout(SOON):
        said = await asyncio.gather(*(kept.blobs.put("one/key", held_back(data)) for data in candidates))
    winner = await kept.blobs.get("one/key")
    assert winner in candidates
    assert said == [len(winner)] * writers
    assert kept.everything() == ["one/key"]


async def test_two_processes_see_one_place(kept: Kept) -> None:
    other = open_blobs(kept.url)
    await kept.blobs.put("a", b"one")
    assert await other.put("a", b"two") == 3
    assert await other.get("a") == b"one"


async def test_a_large_blob_passes_through_little_memory(kept: Kept) -> None:
    script = """
import asyncio, hashlib, psutil, sys
from easel.stores.blobs.store import open_blobs

sent, found, used = hashlib.sha256(), hashlib.sha256(), []

def look():
    used.append(psutil.Process().memory_info().rss >> 20)

async def much():
    for number in range(64):
        piece = number.to_bytes(4, "big") * 262_144
        sent.update(piece)
        look()
        yield piece

async def main():
    blobs = open_blobs(sys.argv[1])
    await blobs.check()
    look()
    assert await blobs.put("much", much()) == 64 << 20
    async for chunk in await blobs.read("much"):
        found.update(chunk)
        look()
    assert sent.digest() == found.digest()
    print(max(used) - used[0])

asyncio.run(main())
"""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", script, kept.url],
        capture_output=True,
        text=True,
        timeout=SOON,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 48, "megabytes, for a blob of 64"


# --- limits, failures and second thoughts leave nothing behind --------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 10, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, LARGE])
async def test_a_blob_over_the_limit_is_refused_and_leaves_nothing(kept: Kept, limit: int) -> None:
    for data in (bytes(limit + 1), pieces(bytes(limit + 1))):
        with pytest.raises(TooLarge, match=str(limit)):
            await kept.blobs.put("k", data, size_limit=limit)
    assert kept.everything() == []
    assert await kept.blobs.put("k", pieces(bytes(limit)), size_limit=limit) == limit


async def test_an_endless_stream_is_read_no_further_than_the_limit(blobs: Blobs) -> None:
    given_out = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal given_out
        while True:
            given_out += 1000
            yield bytes(1000)

    with pytest.raises(TooLarge):
        await blobs.put("k", endless(), size_limit=10_000)
    assert given_out == 11_000


@pytest.mark.parametrize("size", [0, 1000, LARGE])
@pytest.mark.parametrize(
    "failure", [ConnectionResetError("the client went away"), ValueError("not a picture")]
)
async def test_a_source_that_fails_is_heard_and_leaves_nothing(
    kept: Kept, size: int, failure: Exception
) -> None:
    async def failing() -> AsyncIterator[bytes]:
        async for piece in pieces(bytes(size)):
            yield piece
        raise failure

    with pytest.raises(type(failure), match=str(failure)):
        await kept.blobs.put("k", failing())
    assert kept.everything() == []


@pytest.mark.parametrize("size", [0, 1000, LARGE])
async def test_a_put_that_is_cancelled_leaves_nothing(kept: Kept, size: int) -> None:
    drained = asyncio.Event()

    async def stalled() -> AsyncIterator[bytes]:
        async for piece in pieces(bytes(size)):
            yield piece
        drained.set()
        await asyncio.get_running_loop().create_future()

    putting = asyncio.create_task(kept.blobs.put("k", stalled()))
    async with asyncio.timeout(SOON):
        await drained.wait()
        putting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await putting
    assert kept.everything() == []
    assert await kept.blobs.put("k", b"again") == 5


# --- reading ----------------------------------------------------------------------------------------------------------


async def test_a_large_blob_is_read_in_small_chunks(blobs: Blobs) -> None:
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
async def test_a_range_is_cut_like_a_slice(blobs: Blobs, start: int, end: int | None) -> None:
    await blobs.put("ranged", RANGED)
    chunks = [chunk async for chunk in await blobs.read("ranged", start, end)]
    assert b"".join(chunks) == RANGED[start:end]
    assert all(0 < len(chunk) <= CHUNK_BYTES for chunk in chunks)


async def test_a_range_of_nothing_is_nothing(blobs: Blobs) -> None:
    await blobs.put("empty", b"")
    for start, end in [(0, None), (0, 0), (0, 5), (3, None)]:
        assert [chunk async for chunk in await blobs.read("empty", start, end)] == []


@pytest.mark.parametrize("start, end", [(-1, None), (0, -1)])
async def test_a_negative_range_is_refused(blobs: Blobs, start: int, end: int | None) -> None:
    await blobs.put("k", b"abc")
    with pytest.raises(BadInput, match="range"):
        await blobs.read("k", start, end)


async def test_a_missing_blob_is_missed_before_the_first_chunk(blobs: Blobs) -> None:
    await blobs.put("there/is/one", b"x")
    for key in ("missing", "there/is", "there/is/one/below"):
        with pytest.raises(NotFound, match=key):
            await blobs.get(key)
        for start, end in [(0, None), (0, 0), (5, None), (5, 9)]:
            with pytest.raises(NotFound, match=key):
                await blobs.read(key, start, end)
        assert await blobs.size(key) is None


# --- deleting and listing ---------------------------------------------------------------------------------------------


async def test_a_deleted_blob_is_gone_and_may_be_put_again(kept: Kept) -> None:
    await kept.blobs.put("a/b/c", b"old")
    await kept.blobs.delete("a/b/c")
    await kept.blobs.delete("a/b/c")
    await kept.blobs.delete("never/was")
    assert await kept.blobs.size("a/b/c") is None
    assert kept.everything() == []
    await kept.blobs.put("a/b/c", b"new")
    assert await kept.blobs.get("a/b/c") == b"new"
    await kept.blobs.delete("a/b/c")
    assert await kept.blobs.put("a/b", b"where a folder was") == 18


async def test_a_list_is_what_lies_below_a_folder(blobs: Blobs) -> None:
    keys = {"a", "b/c", "b/cc/d", "b/c.txt", "bb/c", *(f"many/{number:03}" for number in range(120))}
    for key in keys:
        await blobs.put(key, b"")
    assert await listed(blobs) == sorted(keys)
    assert await listed(blobs, "b") == await listed(blobs, "b/") == ["b/c", "b/c.txt", "b/cc/d"]
    assert await listed(blobs, "b/cc") == ["b/cc/d"]
    assert len(await listed(blobs, "many")) == 120
    assert await listed(blobs, "a") == await listed(blobs, "nothing/here") == []


async def test_puts_and_deletes_of_neighbours_do_not_disturb_each_other(kept: Kept) -> None:
    """A delete takes the folders away that it emptied, while others are about to write into them."""

    async def to_and_fro(number: int) -> None:
        for turn in range(10):
            await kept.blobs.put(f"one/shared/folder/{number}", bytes(turn))
            assert await kept.blobs.size(f"one/shared/folder/{number}") == turn
            await kept.blobs.delete(f"one/shared/folder/{number}")

    async with asyncio.timeout(SOON):
        await asyncio.gather(*(to_and_fro(number) for number in range(10)))
    assert kept.everything() == []


# --- keys -------------------------------------------------------------------------------------------------------------

REFUSED = [
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
REFUSED += [
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


@pytest.mark.parametrize("key", REFUSED)
async def test_a_key_that_could_lead_elsewhere_is_refused_by_every_verb(kept: Kept, key: str) -> None:
    blobs = kept.blobs
    verbs = [
        blobs.put(key, b""),
        blobs.put(key, pieces(b"x")),
        blobs.get(key),
        blobs.read(key),
        blobs.size(key),
        blobs.delete(key),
    ]
    for verb in verbs:
        with pytest.raises(BadInput):
            await verb
    if key not in {"", "a/"}:  # a folder may be named with its slash
        with pytest.raises(BadInput):
            await listed(blobs, key)
    assert kept.everything() == []


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


@settings(max_examples=200, deadline=None)
@given(st.lists(SEGMENTS | st.text(max_size=20), max_size=8).map("/".join) | st.text())
def test_a_key_is_refused_or_stays_under_the_root(key: str) -> None:
    if is_key(key):
        assert check_key(key) == key
        assert len(key.encode()) <= 1024
        assert os.path.normpath(os.path.join("/top", key)) == f"/top/{key}"  # noqa: PTH118 - as the system calls see it
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
async def test_every_key_that_is_accepted_is_kept_as_it_is(blobs: Blobs, key: str) -> None:
    await blobs.put(key, key.encode())
    assert await blobs.get(key) == key.encode()
    assert await listed(blobs) == [key]
    await blobs.delete(key)
    assert await listed(blobs) == []


# --- leftovers --------------------------------------------------------------------------------------------------------


async def test_what_a_dead_process_left_aside_is_not_listed_and_swept_when_it_is_old(
    kept: Kept, disk: Kept, aws: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if kept is disk:
        (tmp_path / "blobs" / STAGING).mkdir()
        (tmp_path / "blobs" / STAGING / "half").write_bytes(b"ha")
    else:
        name = kept.url.removeprefix("s3://").partition("/")[0]
        aws.put_object(Bucket=name, Key=f"some/prefix/{STAGING}/half", Body=b"ha")
    await kept.blobs.put("whole", b"whole")
    assert sorted(kept.everything()) == [f"{STAGING}/half", "whole"], "it is young, so its writer may live"
    assert await listed(kept.blobs) == ["whole"]
    assert await kept.blobs.sweep() == 0
    monkeypatch.setattr("easel.stores.blobs.store.STALE", timedelta(seconds=-10))
    await open_blobs(kept.url).put("another", b"")
    assert sorted(kept.everything()) == ["another", "whole"]
    assert await kept.blobs.sweep() == 0


# --- lost places ------------------------------------------------------------------------------------------------------


async def test_a_check_passes_and_leaves_nothing(kept: Kept) -> None:
    await kept.blobs.check()
    assert kept.everything() == []


async def refuses_everything(blobs: Blobs) -> None:
    async with asyncio.timeout(SOON):
        attempts = [
            blobs.check(),
            blobs.put("k", b""),
            blobs.put("k", pieces(bytes(LARGE))),
            blobs.get("k"),
            blobs.size("k"),
        ]
        for attempt in [*attempts, blobs.delete("k"), listed(blobs), blobs.sweep()]:
            with pytest.raises(Unavailable, match="blob store"):
                await attempt


async def test_a_lost_folder_is_unavailable(disk: Kept, tmp_path: Path) -> None:
    (tmp_path / "blobs").rename(tmp_path / "unplugged")
    await refuses_everything(disk.blobs)
    (tmp_path / "unplugged").rename(tmp_path / "blobs")
    await disk.blobs.check()


async def test_a_lost_server_is_unavailable(aws: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens; given back, the port would be somebody else's next
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{taken.getsockname()[1]}")
        await refuses_everything(open_blobs("s3://bucket"))


async def test_a_bucket_that_does_not_exist_is_unavailable(aws: Any) -> None:
    blobs = open_blobs("s3://no-such-bucket/prefix")
    for attempt in (
        blobs.check(),
        blobs.put("k", b""),
        blobs.put("k", pieces(bytes(LARGE))),
        blobs.get("k"),
        listed(blobs),
    ):
        with pytest.raises(Unavailable, match="no such bucket"):
            await attempt


@pytest.mark.parametrize("status", [401, 403])
async def test_a_server_that_refuses_our_credentials_is_unavailable(
    aws: Any, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        await reader.readexactly(int(length[1]) if length else 0)
        writer.write(f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        blobs = open_blobs("s3://bucket")
        for attempt in (blobs.check(), blobs.get("k"), blobs.size("k")):
            with pytest.raises(Unavailable, match="credentials"):
                await attempt


async def test_plain_http_beyond_this_machine_must_be_asked_for(
    aws: Any, bucket: Kept, s3_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "AWS_ENDPOINT_URL", s3_server.replace("127.0.0.1", "127.1")
    )  # the same, by a name that does not show it
    with pytest.raises(Unavailable):
        await open_blobs(bucket.url).check()
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    await open_blobs(bucket.url).check()


# --- where blobs may be kept ------------------------------------------------------------------------------------------

NO_PLACE = [
    "",
    "ftp://x/y",
    "file://relative/path",
    "file:///x?y",
    "s3://",
    "s3:///prefix",
    "s3://user:secret@bucket",
    "s3://b:80/x",
]
NO_PLACE += ["s3://bucket/../x", "s3://bucket/x?region=y", "s3://[x", f"s3://bucket/{STAGING}"]


@pytest.mark.parametrize("url", NO_PLACE)
def test_a_place_that_makes_no_sense_is_refused(url: str) -> None:
    with pytest.raises(BadInput) as refused:
        open_blobs(url)
    assert "secret" not in refused.value.message


def test_aws_variables_that_make_no_sense_are_refused(aws: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_COPY_IF_NOT_EXISTS", "somehow")
    with pytest.raises(BadInput, match="somehow"):
        open_blobs("s3://bucket")


async def test_a_folder_may_be_given_as_a_path_or_a_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    await open_blobs("a folder/with blobs").put("k", b"here")
    assert await open_blobs(f"{tmp_path}/a folder/with blobs").get("k") == b"here"
    assert await open_blobs(f"file://{tmp_path}/a%20folder/with%20blobs").get("k") == b"here"


async def test_prefixes_in_one_bucket_do_not_meet(bucket: Kept) -> None:
    root = bucket.url.removesuffix("/some/prefix")
    await open_blobs(f"{root}/one").put("k", b"1")
    await open_blobs(f"{root}/other").put("k", b"22")
    assert await open_blobs(f"{root}/one/").get("k") == b"1"
    assert await listed(open_blobs(root)) == ["one/k", "other/k"]


def test_a_folder_costs_no_import_of_obstore(tmp_path: Path) -> None:
    script = "import sys; from easel.stores.blobs.store import open_blobs; open_blobs(sys.argv[1]); sys.exit('obstore' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", script, str(tmp_path)], timeout=SOON, check=False).returncode
        == 0
    )


@pytest.mark.parametrize("attempt", range(8))
async def test_process_that_used_a_bucket_exits_cleanly(bucket: Kept, attempt: int) -> None:
    """obstore's coroutines would fail here, every few times: their last thread aborts a process that is just ending."""
    script = "import asyncio, sys; from easel.stores.blobs.store import open_blobs; asyncio.run(open_blobs(sys.argv[1]).check())"
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", script, bucket.url)
    async with asyncio.timeout(SOON):
        assert await child.wait() == 0


# --- only a disk loses power, fills up and has links ------------------------------------------------------------------


class PowerCut(BaseException):
    """Nothing runs after this one, clean-up included."""


STEPS = ["open", "mkdir", "write", "fsync", "link", "stat", "unlink"]


def cut_power_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = 0

    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        def cut(*args: Any, **kwargs: Any) -> Any:
            nonlocal taken
            taken += 1
            if taken >= step:
                raise PowerCut
            return real(*args, **kwargs)

        return cut

    for name in STEPS:
        monkeypatch.setattr(f"easel.stores.blobs.disk.os.{name}", wrap(getattr(os, name)))


async def test_a_power_cut_at_any_step_leaves_a_whole_blob_or_none(
    disk: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, outcomes, step = os.urandom(2_500_000), set[bool](), 0
    acknowledged = False
    while not acknowledged:
        step += 1
        key = f"users/u{step}/blob"
        with monkeypatch.context() as power, suppress(PowerCut):
            cut_power_at(step, power)
            acknowledged = await open_blobs(disk.url).put(key, pieces(data)) == len(data)
        after = open_blobs(disk.url)
        present = await after.size(key) is not None
        assert present or not acknowledged
        assert await listed(after, f"users/u{step}") == ([key] if present else [])
        assert await after.put(key, data) == len(data)
        assert await after.get(key) == data
        outcomes.add(present)
    assert step > 15
    assert outcomes == {True, False}


async def test_a_file_is_on_the_disk_before_it_has_its_name_and_the_name_before_the_answer(
    disk: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """obstore's local store would fail here: it syncs nothing."""
    done: list[str | int] = []
    real_sync, real_link, real_write = os.fsync, os.link, os.write

    def sync(descriptor: int) -> None:
        real_sync(descriptor)
        done.append(os.fstat(descriptor).st_ino)

    def link(*args: Any, **kwargs: Any) -> None:
        real_link(*args, **kwargs)
        done.append("name")

    def write(descriptor: int, data: Any) -> int:
        done.append("write")
        return real_write(descriptor, data)

    monkeypatch.setattr("easel.stores.blobs.disk.os.fsync", sync)
    monkeypatch.setattr("easel.stores.blobs.disk.os.link", link)
    monkeypatch.setattr("easel.stores.blobs.disk.os.write", write)
    await disk.blobs.put("a/b/k", b"x")
    root, a, b, blob = (tmp_path.joinpath("blobs", path).stat().st_ino for path in ("", "a", "a/b", "a/b/k"))
    assert done == [root, "write", blob, root, a, "name", b]


async def test_a_process_killed_while_it_writes_leaves_only_a_leftover(disk: Kept) -> None:
    script = """
import asyncio, sys
from easel.stores.blobs.store import open_blobs

async def half():
    for _ in range(3):
        yield bytes(1 << 20)
    print("half", flush=True)
    await asyncio.Event().wait()

asyncio.run(open_blobs(sys.argv[1]).put("k", half()))
"""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, disk.url, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    async with asyncio.timeout(SOON):
        assert await child.stdout.readline() == b"half\n"
        child.kill()
        await child.wait()
    assert [path.partition("/")[0] for path in disk.everything()] == [STAGING]
    assert await listed(disk.blobs) == []
    with pytest.raises(NotFound):
        await disk.blobs.get("k")
    assert await disk.blobs.put("k", b"whole") == 5


async def test_a_full_disk_is_unavailable_and_leaves_nothing(
    disk: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as filled:
        filled.setattr("easel.stores.blobs.disk.os.write", full)
        for attempt in (disk.blobs.put("k", b"x"), disk.blobs.check()):
            with pytest.raises(Unavailable):
                await attempt
    assert disk.everything() == []
    await disk.blobs.check()


async def test_a_link_inside_the_root_is_no_way_out(disk: Kept, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    root = tmp_path / "blobs"
    (root / "folder").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")
    (root / "dangling").symlink_to(outside / "new")
    for key in ("folder/secret", "file", "dangling"):
        assert await disk.blobs.size(key) is None
        with pytest.raises(NotFound):
            await disk.blobs.get(key)
        with pytest.raises(BadInput):
            await disk.blobs.put(key, b"evil")
        await disk.blobs.delete(key)
    with pytest.raises(BadInput):
        await disk.blobs.put("folder/new", b"evil")
    assert await listed(disk.blobs) == await listed(disk.blobs, "folder") == []
    assert [(path.name, path.read_bytes()) for path in outside.iterdir()] == [("secret", b"secret")]
    assert (root / "folder").is_symlink()


async def test_the_root_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    (tmp_path / "blobs").symlink_to(tmp_path / "volume")
    await open_blobs(str(tmp_path / "blobs")).put("k", b"x")
    assert (tmp_path / "volume" / "k").read_bytes() == b"x"


async def test_a_pipe_in_the_place_of_a_blob_holds_nobody_up(disk: Kept, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "blobs" / "pipe")
    async with asyncio.timeout(SOON):
        with pytest.raises(NotFound):
            await disk.blobs.get("pipe")
        with pytest.raises(BadInput):
            await disk.blobs.put("pipe", b"x")


async def test_on_disk_a_blob_is_no_folder_and_a_folder_no_blob(disk: Kept) -> None:
    await disk.blobs.put("a/b", b"x")
    for key in ("a", "a/b/c", "a/b/c/d"):
        with pytest.raises(BadInput, match=key):
            await disk.blobs.put(key, b"y")
    assert disk.everything() == ["a/b"]


async def test_blobs_are_for_their_owner_only(disk: Kept, tmp_path: Path) -> None:
    await disk.blobs.put("a/b", b"x")
    assert [oct((tmp_path / "blobs" / path).stat().st_mode & 0o777) for path in ("", "a", "a/b")] == [
        "0o700",
        "0o700",
        "0o600",
    ]


async def test_many_slow_readers_hold_no_descriptors(disk: Kept) -> None:
    await disk.blobs.put("k", bytes(3 * CHUNK_BYTES))
    before = psutil.Process().num_fds()
    readers = [await disk.blobs.read("k") for _ in range(200)]
    for reader in readers:
        assert await anext(reader) == bytes(CHUNK_BYTES)
    assert psutil.Process().num_fds() <= before + 2
