"""Concurrent changes of one file: a change that succeeded is in the file, a failed one is reported."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

from easel.sandbox import files, safe_open
from tests.requirements import rule
from tests.sandbox.test_files import FileTools

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MANY = 60


@pytest.fixture
def file_tools(tmp_path: Path) -> FileTools:
    return FileTools(tmp_path)


def before_replacing(monkeypatch: pytest.MonkeyPatch, action: Callable[[int], None]) -> None:
    """Call `action` after an edit has read its file and before it replaces it, when the draft gets its
    permissions.
    """
    real, times = os.fchmod, 0

    def fchmod(descriptor: int, mode: int) -> None:
        nonlocal times
        times += 1
        action(times)
        real(descriptor, mode)

    monkeypatch.setattr(os, "fchmod", fchmod)


def write_with_older_time(text: Path, content: str) -> None:
    """Write a file and wait until later writes get another time: file systems count in milliseconds."""
    text.write_text(content)
    probe = text.with_name("probe")
    while True:
        probe.write_text("")
        if probe.stat().st_ctime_ns > text.stat().st_ctime_ns:
            break
    probe.unlink()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@rule("SB-18")
async def test_concurrent_edits_are_not_lost(file_tools: FileTools, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line is edited once, half of them by a path through a link."""
    monkeypatch.setattr(
        safe_open, "LOCK_SECONDS", 100.0
    )  # a slow disk may take longer for all of them than one would wait for its turn
    (file_tools.folder / "real").mkdir()
    (file_tools.folder / "link").symlink_to("real")
    text = file_tools.folder / "real" / "text"
    text.write_text("".join(f"line {number:02} old\n" for number in range(MANY)))
    edits = [
        file_tools.use(
            "Edit",
            path=f"{('real', 'link')[number % 2]}/text",
            old_string=f"line {number:02} old",
            new_string=f"line {number:02} new",
        )
        for number in range(MANY)
    ]
    answers = await asyncio.gather(*edits)
    assert [answer["replacements"] for answer in answers] == [1] * MANY
    assert text.read_text() == "".join(f"line {number:02} new\n" for number in range(MANY))
    assert names(text.parent) == ["text"]


async def test_write_waits_for_a_running_edit(file_tools: FileTools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_open, "LOCK_SECONDS", 100.0)
    (file_tools.folder / "text").write_text("old")
    writing = threading.Thread(
        target=files.write, args=(file_tools.workspace, {"path": "text", "content": "of the write"})
    )
    was_waiting: list[bool] = []

    def write_now(times: int) -> None:
        if times == 1:
            writing.start()
            writing.join(0.2)
            was_waiting.append(writing.is_alive())

    before_replacing(monkeypatch, write_now)
    assert (await file_tools.use("Edit", path="text", old_string="old", new_string="new"))[
        "replacements"
    ] == 1
    writing.join(60)
    assert was_waiting == [True]
    assert (file_tools.folder / "text").read_text() == "of the write", "the write came second"


def overwrite(text: Path, content: str) -> None:
    text.write_text(content)


def replace_with_new_file(text: Path, content: str) -> None:
    text.with_name("new").write_text(content)
    text.with_name("new").rename(text)


def overwrite_with_old_time(text: Path, content: str) -> None:
    before = text.stat()
    text.write_text(content)
    os.utime(text, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("change", [overwrite, replace_with_new_file, overwrite_with_old_time])
async def test_concurrent_change_by_another_program_is_kept(
    file_tools: FileTools, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path, str], None]
) -> None:
    text = file_tools.folder / "text"
    write_with_older_time(text, "one\ntwo\n")
    before_replacing(monkeypatch, lambda times: change(text, "one\nTWO\n") if times == 1 else None)
    assert (await file_tools.use("Edit", path="text", old_string="one", new_string="ONE"))[
        "replacements"
    ] == 1
    assert text.read_text() == "ONE\nTWO\n"
    assert names(file_tools.folder) == ["text"]


CONCURRENT_CHANGES: list[tuple[str, Callable[[Path], Any], str]] = [
    ("text replaced", lambda text: text.write_text("ONE\n"), "is not in text"),
    ("file deleted", lambda text: text.unlink(), "text does not exist"),
    ("file replaced by a link", lambda text: (text.unlink(), text.symlink_to("other")), "regular file"),
]


@pytest.mark.parametrize(
    "change, message", [row[1:] for row in CONCURRENT_CHANGES], ids=[row[0] for row in CONCURRENT_CHANGES]
)
async def test_edit_that_is_no_longer_possible_fails(
    file_tools: FileTools, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], Any], message: str
) -> None:
    text = file_tools.folder / "text"
    write_with_older_time(text, "one\n")
    (file_tools.folder / "other").write_text("one\n")
    before_replacing(monkeypatch, lambda times: change(text) if times == 1 else None)
    assert message in await file_tools.refusal("Edit", path="text", old_string="one", new_string="two")
    assert (file_tools.folder / "other").read_text() == "one\n"


async def test_edit_gives_up_on_a_file_that_changes_all_the_time(
    file_tools: FileTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = file_tools.folder / "log"
    log.write_text("begin\n")

    def append(times: int) -> None:
        with log.open("a") as file:
            file.write(f"{times}\n")

    before_replacing(monkeypatch, append)
    message = await file_tools.refusal("Edit", path="log", old_string="begin", new_string="end")
    assert "being written by another program all the time; nothing was changed" in message
    assert log.read_text() == "begin\n" + "".join(
        f"{times}\n" for times in range(1, files.MAX_EDIT_ATTEMPTS + 1)
    )
    assert names(file_tools.folder) == ["log"]


async def test_wait_for_the_lock_of_a_file_has_a_limit(
    file_tools: FileTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safe_open, "LOCK_SECONDS", 0.05)
    with safe_open.lock_path(file_tools.workspace, "text"):
        assert "still being changed by other calls" in await file_tools.refusal(
            "Write", path="text", content="x"
        )
    await file_tools.use("Write", path="text", content="x")
    gc.collect()
    folder = file_tools.folder.stat()
    locks = list(safe_open._locks)  # pyright: ignore[reportPrivateUsage]
    # Only this folder's: a thread that another test left behind may still have a lock of its own.
    assert [lock for lock in locks if lock[:2] == (folder.st_dev, folder.st_ino)] == [], (
        "unused locks are dropped"
    )
