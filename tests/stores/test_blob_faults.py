"""Faults of a folder and of a bucket: unavailable servers, power cuts, full disks, links."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from easel.errors import BadInput, NotFound, Unavailable
from easel.stores.blobs.store import CHUNK_BYTES, STAGING, Blobs, open_blobs
from tests.stores.blob_locations import LARGE, TIMEOUT_SECONDS, BlobLocation, list_keys, pieces

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.slow


# --- unavailable locations ----------------------------------------------------------------------------------


async def test_check_passes_and_deletes_its_blob(location: BlobLocation) -> None:
    await location.blobs.check()
    assert location.everything() == []


async def assert_unavailable(blobs: Blobs) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        attempts = [
            blobs.check(),
            blobs.put("k", b""),
            blobs.put("k", pieces(bytes(LARGE))),
            blobs.get("k"),
            blobs.size("k"),
        ]
        for attempt in [*attempts, blobs.delete("k"), list_keys(blobs), blobs.sweep()]:
            with pytest.raises(Unavailable, match="blob store"):
                await attempt


async def test_missing_folder_is_unavailable(disk: BlobLocation, tmp_path: Path) -> None:
    (tmp_path / "blobs").rename(tmp_path / "unplugged")
    await assert_unavailable(disk.blobs)
    (tmp_path / "unplugged").rename(tmp_path / "blobs")
    await disk.blobs.check()


async def test_unreachable_server_is_unavailable(aws: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening, so that no other process takes the port
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{taken.getsockname()[1]}")
        await assert_unavailable(open_blobs("s3://bucket"))


async def test_missing_bucket_is_unavailable(aws: Any) -> None:
    blobs = open_blobs("s3://no-such-bucket/prefix")
    for attempt in (
        blobs.check(),
        blobs.put("k", b""),
        blobs.put("k", pieces(bytes(LARGE))),
        blobs.get("k"),
        list_keys(blobs),
    ):
        with pytest.raises(Unavailable, match="no such bucket"):
            await attempt


@pytest.mark.parametrize("status", [401, 403])
async def test_refused_credentials_are_unavailable(
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


async def test_plain_http_to_another_machine_requires_a_setting(
    aws: Any, bucket: BlobLocation, s3_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "AWS_ENDPOINT_URL", s3_server.replace("127.0.0.1", "127.1")
    )  # the same host under another name
    with pytest.raises(Unavailable):
        await open_blobs(bucket.url).check()
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    await open_blobs(bucket.url).check()


# --- locations ------------------------------------------------------------------------------------------

INVALID_LOCATIONS = [
    "",
    "ftp://x/y",
    "file://relative/path",
    "file:///x?y",
    "s3://",
    "s3:///prefix",
    "s3://user:secret@bucket",
    "s3://b:80/x",
]
INVALID_LOCATIONS += ["s3://bucket/../x", "s3://bucket/x?region=y", "s3://[x", f"s3://bucket/{STAGING}"]


@pytest.mark.parametrize("url", INVALID_LOCATIONS)
def test_invalid_location_is_refused(url: str) -> None:
    with pytest.raises(BadInput) as refused:
        open_blobs(url)
    assert "secret" not in refused.value.message


def test_invalid_aws_variables_are_refused(aws: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_COPY_IF_NOT_EXISTS", "somehow")
    with pytest.raises(BadInput, match="somehow"):
        open_blobs("s3://bucket")


async def test_folder_can_be_a_path_or_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    await open_blobs("a folder/with blobs").put("k", b"here")
    assert await open_blobs(f"{tmp_path}/a folder/with blobs").get("k") == b"here"
    assert await open_blobs(f"file://{tmp_path}/a%20folder/with%20blobs").get("k") == b"here"


async def test_prefixes_in_one_bucket_are_separate(bucket: BlobLocation) -> None:
    root = bucket.url.removesuffix("/some/prefix")
    await open_blobs(f"{root}/one").put("k", b"1")
    await open_blobs(f"{root}/other").put("k", b"22")
    assert await open_blobs(f"{root}/one/").get("k") == b"1"
    assert await list_keys(open_blobs(root)) == ["one/k", "other/k"]


def test_blobs_in_a_folder_do_not_import_obstore(tmp_path: Path) -> None:
    script = (
        "import sys; from easel.stores.blobs.store import open_blobs; open_blobs(sys.argv[1]);"
        " sys.exit('obstore' in sys.modules)"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)], timeout=TIMEOUT_SECONDS, check=False
        ).returncode
        == 0
    )


@pytest.mark.parametrize("attempt", range(8))
async def test_process_that_used_a_bucket_exits_cleanly(bucket: BlobLocation, attempt: int) -> None:
    """obstore's coroutines fail here in one of five runs: their thread aborts an exiting process."""
    script = (
        "import asyncio, sys; from easel.stores.blobs.store import open_blobs;"
        " asyncio.run(open_blobs(sys.argv[1]).check())"
    )
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", script, bucket.url)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        assert await child.wait() == 0


# --- faults of a disk ------------------------------------------------------------------


class PowerCut(BaseException):
    """Not an `Exception`, so that no clean-up runs after it."""


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


async def test_power_cut_at_any_step_leaves_a_complete_blob_or_none(
    disk: BlobLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, outcomes, step = os.urandom(2_500_000), set[bool](), 0
    acknowledged = False
    while not acknowledged:
        step += 1
        key = f"accounts/u{step}/blob"
        with monkeypatch.context() as power, suppress(PowerCut):
            cut_power_at(step, power)
            acknowledged = await open_blobs(disk.url).put(key, pieces(data)) == len(data)
        after = open_blobs(disk.url)
        present = await after.size(key) is not None
        assert present or not acknowledged
        assert await list_keys(after, f"accounts/u{step}") == ([key] if present else [])
        assert await after.put(key, data) == len(data)
        assert await after.get(key) == data
        outcomes.add(present)
    assert step > 15
    assert outcomes == {True, False}


async def test_file_is_synced_before_it_gets_its_name_and_its_folder_before_the_put_returns(
    disk: BlobLocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """obstore's local store fails here: it syncs nothing."""
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


async def test_process_killed_during_a_put_leaves_only_a_staged_file(disk: BlobLocation) -> None:
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
    async with asyncio.timeout(TIMEOUT_SECONDS):
        assert await child.stdout.readline() == b"half\n"
        child.kill()
        await child.wait()
    assert [path.partition("/")[0] for path in disk.everything()] == [STAGING]
    assert await list_keys(disk.blobs) == []
    with pytest.raises(NotFound):
        await disk.blobs.get("k")
    assert await disk.blobs.put("k", b"whole") == 5


async def test_full_disk_is_unavailable_and_leaves_no_file(
    disk: BlobLocation, monkeypatch: pytest.MonkeyPatch
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


async def test_link_inside_the_root_is_not_followed(disk: BlobLocation, tmp_path: Path) -> None:
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
    assert await list_keys(disk.blobs) == await list_keys(disk.blobs, "folder") == []
    assert [(path.name, path.read_bytes()) for path in outside.iterdir()] == [("secret", b"secret")]
    assert (root / "folder").is_symlink()


async def test_root_folder_can_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    (tmp_path / "blobs").symlink_to(tmp_path / "volume")
    await open_blobs(str(tmp_path / "blobs")).put("k", b"x")
    assert (tmp_path / "volume" / "k").read_bytes() == b"x"


async def test_pipe_in_place_of_a_blob_does_not_block(disk: BlobLocation, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "blobs" / "pipe")
    async with asyncio.timeout(TIMEOUT_SECONDS):
        with pytest.raises(NotFound):
            await disk.blobs.get("pipe")
        with pytest.raises(BadInput):
            await disk.blobs.put("pipe", b"x")


async def test_key_must_not_be_both_a_blob_and_a_folder_on_disk(disk: BlobLocation) -> None:
    await disk.blobs.put("a/b", b"x")
    for key in ("a", "a/b/c", "a/b/c/d"):
        with pytest.raises(BadInput, match=key):
            await disk.blobs.put(key, b"y")
    assert disk.everything() == ["a/b"]


async def test_blob_files_are_readable_by_their_owner_only(disk: BlobLocation, tmp_path: Path) -> None:
    await disk.blobs.put("a/b", b"x")
    assert [oct((tmp_path / "blobs" / path).stat().st_mode & 0o777) for path in ("", "a", "a/b")] == [
        "0o700",
        "0o700",
        "0o600",
    ]


async def test_slow_readers_hold_no_descriptors(disk: BlobLocation) -> None:
    await disk.blobs.put("k", bytes(3 * CHUNK_BYTES))
    before = psutil.Process().num_fds()
    readers = [await disk.blobs.read("k") for _ in range(200)]
    for reader in readers:
        assert await anext(reader) == bytes(CHUNK_BYTES)
    assert psutil.Process().num_fds() <= before + 2
