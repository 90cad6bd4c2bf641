"""Session folders: one per session, kept while in use, and removed after their time to live."""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel.errors import BadSettings
from easel.ids import OWNER
from easel.sandbox.session_dirs import REMOVED, SessionDirs, folder_name, remove
from tests.requirements import rule
from tests.sandbox.conftest import context
from tests.sandbox.processes import TIMEOUT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DAY = 86_400.0


class Counts:
    def __init__(self) -> None:
        self.removed = self.failed = 0

    def count_removed(self, number: int) -> None:
        self.removed += number

    def count_failed(self, number: int) -> None:
        self.failed += number


@pytest.fixture
def counts() -> Counts:
    return Counts()


@pytest.fixture
def session_dirs(tmp_path: Path, counts: Counts) -> SessionDirs:
    return SessionDirs(
        tmp_path / "sandbox",
        ttl_seconds=DAY,
        count_removed=counts.count_removed,
        count_failed=counts.count_failed,
    )


async def use_folder(session_dirs: SessionDirs, session: str = "agent:main:s") -> Path:
    async with session_dirs.enter(context(session)) as workspace:
        (workspace.roots[0].folder / "note").write_text("kept")
        return workspace.roots[0].folder


def lock_of(folder: Path) -> Path:
    return Path(f"{folder}.lock")


# --- names --------------------------------------------------------------------------------------------------


@rule("SB-12")
@given(first=st.text(), second=st.text())
def test_every_name_has_a_safe_folder_name_of_its_own(first: str, second: str) -> None:
    name = folder_name(first)
    assert (name == folder_name(second)) is (first == second)
    assert Path(name).name == name
    assert name not in {".", ".."}
    assert not name.startswith(".")
    assert name.isascii()
    assert len(name) < 100


@pytest.mark.parametrize(
    "name",
    [
        "..",
        ".",
        "",
        "/etc/passwd",
        "a/../../b",
        "agent:main:x",
        "A",
        "a",
        "ä",
        "a\0b",
        "con",
        "x" * 10_000,
        "\ud800",
    ],
)
def test_unusual_name_becomes_one_path_component(name: str) -> None:
    assert folder_name(name).isascii()
    assert "/" not in folder_name(name)


def test_folder_name_is_readable() -> None:
    assert folder_name("agent:main:Release 1.0").startswith("agent-main-release-1-0-")


@rule("SB-12", "RX-54")
async def test_session_folder_is_private(
    session_dirs: SessionDirs,
) -> None:
    folder = await use_folder(session_dirs)
    assert folder.parent.parent == session_dirs.root
    assert folder.parent.name.startswith(OWNER)
    for path in (session_dirs.root, folder.parent, folder):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert await use_folder(session_dirs, "agent:main:t") != folder
    assert await use_folder(session_dirs) == folder


async def test_workspace_needs_a_session(session_dirs: SessionDirs) -> None:
    with pytest.raises(ValueError, match="session"):
        async with session_dirs.enter(None):
            pass


def test_check_finds_an_unusable_root(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    session_dirs = SessionDirs(tmp_path / "file" / "sandbox")
    with pytest.raises(BadSettings, match="EASEL_SANDBOX_ROOT"):
        session_dirs.check()


def test_folders_are_created_on_first_use(tmp_path: Path) -> None:
    assert SessionDirs(tmp_path / "sandbox", ttl_seconds=DAY).clean() == (0, 0)
    assert list(tmp_path.iterdir()) == []


async def test_folder_without_permissions_is_opened_again(session_dirs: SessionDirs) -> None:
    folder = await use_folder(session_dirs)
    folder.chmod(0)
    assert await use_folder(session_dirs) == folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


# --- time to live -------------------------------------------------------------------------------------------


@rule("SB-12", "SB-17")
async def test_expired_folder_is_removed_and_counted(session_dirs: SessionDirs, counts: Counts) -> None:
    folder = await use_folder(session_dirs)
    assert session_dirs.clean(time.time() + DAY - 60) == (0, 0)
    assert (folder / "note").read_text() == "kept"
    assert session_dirs.clean(time.time() + DAY + 60) == (1, 0)
    assert list(folder.parent.iterdir()) == []
    assert list((session_dirs.root / REMOVED).iterdir()) == []
    assert (counts.removed, counts.failed) == (1, 0)


@rule("SB-12")
async def test_time_to_live_restarts_with_every_use(session_dirs: SessionDirs) -> None:
    folder = await use_folder(session_dirs)
    os.utime(lock_of(folder), (0, time.time() - 2 * DAY))
    await use_folder(session_dirs)
    assert session_dirs.clean()[0] == 0


@rule("SB-12")
async def test_expired_folder_in_use_is_kept(session_dirs: SessionDirs) -> None:
    async with session_dirs.enter(context()) as workspace:
        folder = workspace.roots[0].folder
        os.utime(lock_of(folder), (0, 0))
        assert session_dirs.clean() == (0, 0)
        assert folder.is_dir()
    os.utime(lock_of(folder), (0, 0))
    assert session_dirs.clean() == (1, 0)


@rule("SB-12")
async def test_folder_in_use_by_another_process_is_kept(session_dirs: SessionDirs) -> None:
    folder = await use_folder(session_dirs)
    script = """
import fcntl, sys
file = open(sys.argv[1])
fcntl.flock(file, fcntl.LOCK_SH)
print("locked", flush=True)
sys.stdin.read()
"""
    other = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", script, lock_of(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout
    assert other.stdin
    other.stdout.readline()
    os.utime(lock_of(folder), (0, 0))
    assert session_dirs.clean()[0] == 0
    other.kill()  # the kernel releases its lock
    other.wait()
    other.stdin.close()
    other.stdout.close()
    assert session_dirs.clean()[0] == 1


@rule("SB-12")
async def test_use_during_a_cleanup_gets_a_new_folder(session_dirs: SessionDirs) -> None:
    """The use waits until the folder was moved aside, and finds the lock file that it had opened removed."""
    folder = await use_folder(session_dirs)
    lock = os.open(lock_of(folder), os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    using = asyncio.create_task(use_folder(session_dirs))
    await asyncio.sleep(0.05)
    assert not using.done()
    remove(folder)
    lock_of(folder).unlink()
    os.close(lock)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        assert await using == folder
    assert (folder / "note").exists()
    assert lock_of(folder).exists()


def before_locking(monkeypatch: pytest.MonkeyPatch, kind: int, action: Callable[[], object]) -> None:
    """Call `action` once, after a lock file was opened and before it is locked."""
    real, was_called = fcntl.flock, False

    def flock(lock: int, operation: int) -> None:
        nonlocal was_called
        if operation & kind and not was_called:
            was_called = True
            action()
        real(lock, operation)

    monkeypatch.setattr(fcntl, "flock", flock)


@rule("SB-12")
async def test_lock_file_removed_by_a_cleanup_is_created_again(
    session_dirs: SessionDirs, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = await use_folder(session_dirs)
    before_locking(monkeypatch, fcntl.LOCK_SH, lambda: session_dirs.clean(time.time() + 2 * DAY))
    async with session_dirs.enter(context("agent:main:s")):
        await use_folder(session_dirs)  # another call of the session, with a lock at the same path
        assert session_dirs.clean(time.time() + 2 * DAY)[0] == 0
        assert folder.is_dir()


@rule("SB-12")
async def test_folder_used_just_before_the_cleanup_locks_it_is_kept(
    session_dirs: SessionDirs, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = await use_folder(session_dirs)
    os.utime(lock_of(folder), (0, 0))
    before_locking(monkeypatch, fcntl.LOCK_EX, lambda: os.utime(lock_of(folder)))
    assert session_dirs.clean()[0] == 0
    assert (folder / "note").exists()


@rule("SB-12")
async def test_time_to_live_starts_at_the_end_of_a_use(session_dirs: SessionDirs) -> None:
    """A command may take longer than the time to live."""
    async with session_dirs.enter(context()) as workspace:
        folder = workspace.roots[0].folder
        os.utime(lock_of(folder), (0, 0))
    assert session_dirs.clean()[0] == 0
    assert folder.is_dir()


async def test_concurrent_cleanups_keep_folders_in_use(session_dirs: SessionDirs) -> None:
    """All session_dirs are expired for the clean-up: only the lock protects them."""
    stop = False

    def clean() -> None:
        while not stop:
            session_dirs.clean(time.time() + 2 * DAY)

    cleaning = asyncio.create_task(asyncio.to_thread(clean))
    try:
        for _ in range(100):
            async with session_dirs.enter(context()) as workspace:
                note = workspace.roots[0].folder / "note"
                note.write_text("x")
                await asyncio.sleep(0.001)
                assert note.read_text() == "x"
    finally:
        stop = True
        await cleaning


async def test_cancelled_use_releases_its_lock(session_dirs: SessionDirs) -> None:
    folder = await use_folder(session_dirs)
    for _ in range(20):
        task = asyncio.create_task(use_folder(session_dirs))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    os.utime(lock_of(folder), (0, 0))
    assert session_dirs.clean()[0] == 1


@rule("SB-17")
async def test_failed_removal_is_counted_and_retried(
    session_dirs: SessionDirs, counts: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    await use_folder(session_dirs)

    def refuse(folder: Path) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr("easel.sandbox.session_dirs.remove", refuse)
        assert session_dirs.clean(time.time() + 2 * DAY)[1] >= 1
    assert counts.failed >= 1
    assert session_dirs.clean() == (0, 0)
    assert list((session_dirs.root / REMOVED).iterdir()) == []


async def test_without_a_time_to_live_nothing_is_removed(tmp_path: Path) -> None:
    session_dirs = SessionDirs(tmp_path / "sandbox")
    folder = await use_folder(session_dirs)
    os.utime(lock_of(folder), (0, 0))
    await session_dirs.clean_once()
    assert folder.is_dir()


async def test_one_cleanup_removes_expired_folders(session_dirs: SessionDirs) -> None:
    folder = await use_folder(session_dirs)
    os.utime(lock_of(folder), (0, 0))
    await session_dirs.clean_once()
    assert not folder.exists()


@pytest.mark.parametrize("ttl_seconds, expected", [(0, 300.0), (1, 1.0), (40, 10.0), (DAY, 300.0)])
def test_cleanups_run_several_times_in_a_time_to_live(
    tmp_path: Path, ttl_seconds: float, expected: float
) -> None:
    assert SessionDirs(tmp_path, ttl_seconds=ttl_seconds).cleanup_seconds == expected


# --- change of the owner ------------------------------------------------------------------------------------


def deepen(folder: Path, levels: int) -> None:
    """Create nested session_dirs, deeper than Python may recurse."""
    at = os.open(folder, os.O_DIRECTORY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=at)
        deeper = os.open("d", os.O_DIRECTORY, dir_fd=at)
        os.close(at)
        at = deeper
    os.close(at)


@pytest.fixture
def chowned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the names that are given to another owner: only root can really do that."""
    names: list[str] = []

    def chown(name: str, uid: int, gid: int, *, dir_fd: int, follow_symlinks: bool) -> None:
        assert (uid, gid, follow_symlinks) == (64_321, 64_321, False)
        assert os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        names.append(name)

    monkeypatch.setattr(os, "chown", chown)
    monkeypatch.setattr(
        os, "fchown", lambda _, uid, gid: names.append("the folder itself") if uid == gid == 64_321 else None
    )  # pyright: ignore[reportUnknownLambdaType]
    return names


@rule("SB-12")
async def test_folder_of_another_owner_is_changed_at_any_depth(
    session_dirs: SessionDirs, tmp_path: Path, chowned: list[str]
) -> None:
    folder = await use_folder(session_dirs)
    (folder / "e" / "f").mkdir(parents=True)
    (folder / "e" / "file").write_text("")
    deepen(folder, 1_100)
    await use_folder(SessionDirs(session_dirs.root, owner=64_321))
    assert sorted(chowned) == sorted([".tmp", "note", "e", "f", "file", *["d"] * 1_100, "the folder itself"])
    assert chowned[-1] == "the folder itself", (
        "the folder comes last, so that an interrupted change is repeated"
    )
    remove(folder)


@rule("SB-12", "SB-19")
async def test_file_with_a_second_hard_link_keeps_its_owner(
    session_dirs: SessionDirs, tmp_path: Path, chowned: list[str]
) -> None:
    """Without isolation a command can hard-link any file that it may write into its folder."""
    folder = await use_folder(session_dirs)
    (tmp_path / "database").write_text("of Easel")
    (folder / "mine").hardlink_to(tmp_path / "database")
    (folder / "link").symlink_to(tmp_path / "database")
    await use_folder(SessionDirs(session_dirs.root, owner=64_321))
    assert sorted(chowned) == [".tmp", "link", "note", "the folder itself"]


# --- removing -----------------------------------------------------------------------------------------------


@pytest.fixture
def folder_to_remove(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "folder_to_remove"
    folder.mkdir()
    yield folder
    assert not folder.exists()


@rule("SB-12")
def test_removal_follows_no_link(folder_to_remove: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("kept")
    (folder_to_remove / "folder").symlink_to(outside)
    (folder_to_remove / "file").symlink_to(outside / "precious")
    (folder_to_remove / "deep").mkdir()
    (folder_to_remove / "deep" / "up").symlink_to("../..")
    remove(folder_to_remove)
    assert (outside / "precious").read_text() == "kept"


def test_removal_handles_depth_permissions_and_pipes(folder_to_remove: Path) -> None:
    deepen(folder_to_remove, 1_100)
    closed = folder_to_remove / "closed"
    (closed / "inner").mkdir(parents=True)
    (closed / "inner" / "file").write_text("")
    (closed / "inner").chmod(0)
    closed.chmod(0)
    os.mkfifo(folder_to_remove / "pipe")
    (folder_to_remove / ".easel-moved-1").mkdir()
    (folder_to_remove / "-rf").write_text("")
    remove(folder_to_remove)


def test_removal_of_a_missing_folder_does_nothing(tmp_path: Path) -> None:
    remove(tmp_path / "nothing")
