"""The folders of sessions: one each, kept while somebody works there, and gone after their time to live."""

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
from easel.sandbox.session_dirs import ASIDE, Cleaned, SessionFolders, folder_name, remove
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
def folders(tmp_path: Path, counts: Counts) -> SessionFolders:
    return SessionFolders(
        tmp_path / "sandbox",
        ttl_seconds=DAY,
        count_removed=counts.count_removed,
        count_failed=counts.count_failed,
    )


async def visit(folders: SessionFolders, session: str = "agent:main:s") -> Path:
    async with folders.enter(context(session)) as place:
        (place.roots[0].folder / "note").write_text("kept")
        return place.roots[0].folder


def lock_of(folder: Path) -> Path:
    return Path(f"{folder}.lock")


# --- names ------------------------------------------------------------------------------------------------------------


@rule("SB-12")
@given(one=st.text(), other=st.text())
def test_no_two_names_share_a_folder_and_none_leads_elsewhere(one: str, other: str) -> None:
    name = folder_name(one)
    assert (name == folder_name(other)) is (one == other)
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
def test_a_strange_name_is_one_plain_name_of_a_folder(name: str) -> None:
    assert folder_name(name).isascii()
    assert "/" not in folder_name(name)


def test_a_folder_can_be_recognised_by_its_name() -> None:
    assert folder_name("agent:main:Release 1.0").startswith("agent-main-release-1-0-")


@rule("SB-12", "RX-54")
async def test_each_session_of_each_user_has_a_folder_that_others_on_the_machine_cannot_open(
    folders: SessionFolders,
) -> None:
    folder = await visit(folders)
    assert folder.parent.parent == folders.root
    assert folder.parent.name.startswith(OWNER)
    for one in (folders.root, folder.parent, folder):
        assert stat.S_IMODE(one.stat().st_mode) == 0o700
    assert await visit(folders, "agent:main:t") != folder
    assert await visit(folders) == folder


async def test_a_place_needs_a_session(folders: SessionFolders) -> None:
    with pytest.raises(ValueError, match="session"):
        async with folders.enter(None):
            pass


def test_a_root_that_cannot_be_used_is_found_by_a_check(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folders = SessionFolders(tmp_path / "file" / "sandbox")
    with pytest.raises(BadSettings, match="EASEL_SANDBOX_ROOT"):
        folders.check()


def test_nothing_is_made_before_it_is_needed(tmp_path: Path) -> None:
    assert SessionFolders(tmp_path / "sandbox", ttl_seconds=DAY).clean() == Cleaned(0, 0)
    assert list(tmp_path.iterdir()) == []


async def test_a_folder_that_its_session_has_closed_opens_again(folders: SessionFolders) -> None:
    folder = await visit(folders)
    folder.chmod(0)
    assert await visit(folders) == folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


# --- time to live -----------------------------------------------------------------------------------------------------


@rule("SB-12", "SB-17")
async def test_a_folder_is_removed_after_its_time_to_live_and_counted(
    folders: SessionFolders, counts: Counts
) -> None:
    folder = await visit(folders)
    assert folders.clean(time.time() + DAY - 60) == Cleaned(0, 0)
    assert (folder / "note").read_text() == "kept"
    assert folders.clean(time.time() + DAY + 60) == Cleaned(1, 0)
    assert list(folder.parent.iterdir()) == []
    assert list((folders.root / ASIDE).iterdir()) == []
    assert (counts.removed, counts.failed) == (1, 0)


@rule("SB-12")
async def test_the_time_to_live_begins_anew_with_every_use(folders: SessionFolders) -> None:
    folder = await visit(folders)
    os.utime(lock_of(folder), (0, time.time() - 2 * DAY))
    await visit(folders)
    assert folders.clean().removed == 0


@rule("SB-12")
async def test_a_folder_in_use_stays_however_old_it_is(folders: SessionFolders) -> None:
    async with folders.enter(context()) as place:
        folder = place.roots[0].folder
        os.utime(lock_of(folder), (0, 0))
        assert folders.clean() == Cleaned(0, 0)
        assert folder.is_dir()
    os.utime(lock_of(folder), (0, 0))
    assert folders.clean() == Cleaned(1, 0)


@rule("SB-12")
async def test_a_folder_in_use_by_another_process_stays(folders: SessionFolders) -> None:
    folder = await visit(folders)
    script = "import fcntl, sys\nf = open(sys.argv[1])\nfcntl.flock(f, fcntl.LOCK_SH)\nprint('held', flush=True)\nsys.stdin.read()"
    other = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", script, lock_of(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout
    assert other.stdin
    other.stdout.readline()
    os.utime(lock_of(folder), (0, 0))
    assert folders.clean().removed == 0
    other.kill()  # even a process that dies lets go
    other.wait()
    other.stdin.close()
    other.stdout.close()
    assert folders.clean().removed == 1


@rule("SB-12")
async def test_whoever_comes_while_a_folder_is_cleaned_gets_a_new_one(folders: SessionFolders) -> None:
    """They wait until it has been moved aside, and find the lock that they had opened gone."""
    folder = await visit(folders)
    lock = os.open(lock_of(folder), os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    coming = asyncio.create_task(visit(folders))
    await asyncio.sleep(0.05)
    assert not coming.done()
    remove(folder)
    lock_of(folder).unlink()
    os.close(lock)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        assert await coming == folder
    assert (folder / "note").exists()
    assert lock_of(folder).exists()


def while_locking(monkeypatch: pytest.MonkeyPatch, how: int, happen: Callable[[], object]) -> None:
    """Something happens once between the opening of a lock and the taking of it."""
    real, happened = fcntl.flock, False

    def flock(lock: int, operation: int) -> None:
        nonlocal happened
        if operation & how and not happened:
            happened = True
            happen()
        real(lock, operation)

    monkeypatch.setattr(fcntl, "flock", flock)


@rule("SB-12")
async def test_a_lock_that_a_clean_up_removed_meanwhile_protects_nothing_and_is_taken_anew(
    folders: SessionFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = await visit(folders)
    while_locking(monkeypatch, fcntl.LOCK_SH, lambda: folders.clean(time.time() + 2 * DAY))
    async with folders.enter(context("agent:main:s")):
        await visit(folders)  # another call of the session comes and goes, with a lock at the same place
        assert folders.clean(time.time() + 2 * DAY).removed == 0
        assert folder.is_dir()


@rule("SB-12")
async def test_a_folder_that_was_used_while_a_clean_up_came_to_it_stays(
    folders: SessionFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = await visit(folders)
    os.utime(lock_of(folder), (0, 0))
    while_locking(monkeypatch, fcntl.LOCK_EX, lambda: os.utime(lock_of(folder)))
    assert folders.clean().removed == 0
    assert (folder / "note").exists()


@rule("SB-12")
async def test_the_time_to_live_begins_at_the_end_of_a_use(folders: SessionFolders) -> None:
    """A command may take longer than its folder lives."""
    async with folders.enter(context()) as place:
        folder = place.roots[0].folder
        os.utime(lock_of(folder), (0, 0))
    assert folders.clean().removed == 0
    assert folder.is_dir()


async def test_cleaning_and_working_at_once_lose_no_folder_in_use(folders: SessionFolders) -> None:
    """The lock is made to look old the moment it is taken: nothing but the lock itself protects the folder."""
    stop = False

    def clean() -> None:
        while not stop:
            folders.clean(time.time() + 2 * DAY)

    cleaning = asyncio.create_task(asyncio.to_thread(clean))
    try:
        for _ in range(100):
            async with folders.enter(context()) as place:
                note = place.roots[0].folder / "note"
                note.write_text("x")
                await asyncio.sleep(0.001)
                assert note.read_text() == "x"
    finally:
        stop = True
        await cleaning


async def test_a_cancel_while_waiting_for_a_folder_keeps_no_lock(folders: SessionFolders) -> None:
    folder = await visit(folders)
    for _ in range(20):
        task = asyncio.create_task(visit(folders))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    os.utime(lock_of(folder), (0, 0))
    assert folders.clean().removed == 1


@rule("SB-17")
async def test_a_folder_that_cannot_be_removed_is_counted_and_tried_again(
    folders: SessionFolders, counts: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    await visit(folders)

    def refuse(folder: Path) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as while_it_cannot:
        while_it_cannot.setattr("easel.sandbox.session_dirs.remove", refuse)
        assert folders.clean(time.time() + 2 * DAY).failed >= 1
    assert counts.failed >= 1
    assert folders.clean() == Cleaned(0, 0)
    assert list((folders.root / ASIDE).iterdir()) == []


async def test_without_a_time_to_live_nothing_is_removed(tmp_path: Path) -> None:
    folders = SessionFolders(tmp_path / "sandbox")
    folder = await visit(folders)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await folders.clean_forever()
    assert folder.is_dir()


async def test_the_duty_cleans_at_once(folders: SessionFolders) -> None:
    folder = await visit(folders)
    os.utime(lock_of(folder), (0, 0))
    duty = asyncio.create_task(folders.clean_forever())
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while folder.exists():  # noqa: ASYNC110 - a poll with a deadline
            await asyncio.sleep(0.005)
    duty.cancel()
    await asyncio.gather(duty, return_exceptions=True)


# --- for another user ---------------------------------------------------------------------------------------------------


def deepen(folder: Path, levels: int) -> None:
    """Deeper than any path may be long, and than Python may recurse."""
    at = os.open(folder, os.O_DIRECTORY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=at)
        deeper = os.open("d", os.O_DIRECTORY, dir_fd=at)
        os.close(at)
        at = deeper
    os.close(at)


@pytest.fixture
def given_away(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is given to somebody else, by its name: only root may really do that."""
    given: list[str] = []

    def chown(name: str, uid: int, gid: int, *, dir_fd: int, follow_symlinks: bool) -> None:
        assert (uid, gid, follow_symlinks) == (64_321, 64_321, False)
        assert os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        given.append(name)

    monkeypatch.setattr(os, "chown", chown)
    monkeypatch.setattr(
        os, "fchown", lambda _, uid, gid: given.append("the folder itself") if uid == gid == 64_321 else None
    )  # pyright: ignore[reportUnknownLambdaType]
    return given


@rule("SB-12")
async def test_a_folder_of_an_earlier_setting_is_its_user_s_however_deep(
    folders: SessionFolders, tmp_path: Path, given_away: list[str]
) -> None:
    folder = await visit(folders)
    (folder / "e" / "f").mkdir(parents=True)
    (folder / "e" / "file").write_text("")
    deepen(folder, 1_500)
    await visit(SessionFolders(folders.root, owner=64_321))
    assert sorted(given_away) == sorted(
        [".tmp", "note", "e", "f", "file", *["d"] * 1_500, "the folder itself"]
    )
    assert given_away[-1] == "the folder itself", "so that what was not finished is done again"
    remove(folder)


@rule("SB-12", "SB-19")
async def test_what_has_a_name_outside_too_is_not_given_away(
    folders: SessionFolders, tmp_path: Path, given_away: list[str]
) -> None:
    """Without isolation a command can give any file that it may write a second name, in its folder."""
    folder = await visit(folders)
    (tmp_path / "database").write_text("of Easel")
    (folder / "mine").hardlink_to(tmp_path / "database")
    (folder / "link").symlink_to(tmp_path / "database")
    await visit(SessionFolders(folders.root, owner=64_321))
    assert sorted(given_away) == [".tmp", "link", "note", "the folder itself"]


# --- removing ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def doomed(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "doomed"
    folder.mkdir()
    yield folder
    assert not folder.exists()


@rule("SB-12")
def test_removing_follows_no_link(doomed: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("kept")
    (doomed / "folder").symlink_to(outside)
    (doomed / "file").symlink_to(outside / "precious")
    (doomed / "deep").mkdir()
    (doomed / "deep" / "up").symlink_to("../..")
    remove(doomed)
    assert (outside / "precious").read_text() == "kept"


def test_removing_copes_with_what_a_session_can_leave(doomed: Path) -> None:
    deepen(doomed, 1_600)
    closed = doomed / "closed"
    (closed / "inner").mkdir(parents=True)
    (closed / "inner" / "file").write_text("")
    (closed / "inner").chmod(0)
    closed.chmod(0)
    os.mkfifo(doomed / "pipe")
    (doomed / ".easel-moved-1").mkdir()
    (doomed / "-rf").write_text("")
    remove(doomed)


def test_removing_what_is_not_there_is_done_already(tmp_path: Path) -> None:
    remove(tmp_path / "nothing")
