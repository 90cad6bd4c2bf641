"""Files that several change at the same time: what is answered as done is in the file, and what could not be done is said."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

from easel.sandbox import files
from easel.sandbox import safe_open as beneath
from tests.requirements import rule
from tests.sandbox.test_files import Desk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MANY = 60


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def between(monkeypatch: pytest.MonkeyPatch, happen: Callable[[int], None]) -> None:
    """Something happens after an edit has read its file and before it is put in place, when a draft gets its permissions."""
    real, times = os.fchmod, 0

    def fchmod(descriptor: int, mode: int) -> None:
        nonlocal times
        times += 1
        happen(times)
        real(descriptor, mode)

    monkeypatch.setattr(os, "fchmod", fchmod)


def written_before(text: Path, content: str) -> None:
    """So long ago that what is written from now on has another time: a file system may count in ticks of some milliseconds."""
    text.write_text(content)
    probe = text.with_name("probe")
    while True:
        probe.write_text("")
        if probe.stat().st_ctime_ns > text.stat().st_ctime_ns:
            break
    probe.unlink()


def names(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


@rule("SB-18")
async def test_no_edit_of_many_at_once_is_lost(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """By whatever way the file is reached: each line is edited once, half of them through a link to the folder."""
    monkeypatch.setattr(
        beneath, "TURN_SECONDS", 100.0
    )  # a slow disk may take longer for all of them than one would wait for its turn
    (desk.folder / "real").mkdir()
    (desk.folder / "link").symlink_to("real")
    text = desk.folder / "real" / "text"
    text.write_text("".join(f"line {number:02} old\n" for number in range(MANY)))
    edits = [
        desk.use(
            "Edit",
            path=f"{('real', 'link')[number % 2]}/text",
            old_string=f"line {number:02} old",
            new_string=f"line {number:02} new",
        )
        for number in range(MANY)
    ]
    answers = await asyncio.gather(*edits)
    assert [one["replacements"] for one in answers] == [1] * MANY
    assert text.read_text() == "".join(f"line {number:02} new\n" for number in range(MANY))
    assert names(text.parent) == ["text"]


async def test_a_write_waits_for_the_edit_that_is_under_way(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beneath, "TURN_SECONDS", 100.0)
    (desk.folder / "text").write_text("old")
    place = desk.place
    writing = threading.Thread(target=files.write, args=(place, {"path": "text", "content": "of the write"}))
    was_held: list[bool] = []

    def write_now(times: int) -> None:
        if times == 1:
            writing.start()
            writing.join(0.2)
            was_held.append(writing.is_alive())

    between(monkeypatch, write_now)
    assert (await desk.use("Edit", path="text", old_string="old", new_string="new"))["replacements"] == 1
    writing.join(60)
    assert was_held == [True]
    assert (desk.folder / "text").read_text() == "of the write", "it came second"


def in_place(text: Path, content: str) -> None:
    text.write_text(content)


def by_a_new_file(text: Path, content: str) -> None:
    text.with_name("new").write_text(content)
    text.with_name("new").rename(text)


def with_its_old_time(text: Path, content: str) -> None:
    before = text.stat()
    text.write_text(content)
    os.utime(text, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("written", [in_place, by_a_new_file, with_its_old_time])
async def test_what_another_program_wrote_meanwhile_is_kept(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, written: Callable[[Path, str], None]
) -> None:
    text = desk.folder / "text"
    written_before(text, "one\ntwo\n")
    between(monkeypatch, lambda times: written(text, "one\nTWO\n") if times == 1 else None)
    assert (await desk.use("Edit", path="text", old_string="one", new_string="ONE"))["replacements"] == 1
    assert text.read_text() == "ONE\nTWO\n"
    assert names(desk.folder) == ["text"]


MEANWHILE: list[tuple[str, Callable[[Path], Any], str]] = [
    ("it was edited away", lambda text: text.write_text("ONE\n"), "is not in text"),
    ("it went away", lambda text: text.unlink(), "there is no text"),
    ("a link took its place", lambda text: (text.unlink(), text.symlink_to("other")), "no file"),
]


@pytest.mark.parametrize("happens, says", [row[1:] for row in MEANWHILE], ids=[row[0] for row in MEANWHILE])
async def test_an_edit_that_can_no_longer_be_made_says_so(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, happens: Callable[[Path], Any], says: str
) -> None:
    text = desk.folder / "text"
    written_before(text, "one\n")
    (desk.folder / "other").write_text("one\n")
    between(monkeypatch, lambda times: happens(text) if times == 1 else None)
    assert says in await desk.refusal("Edit", path="text", old_string="one", new_string="two")
    assert (desk.folder / "other").read_text() == "one\n"


async def test_a_file_that_is_written_all_the_time_is_left_alone_and_that_is_said(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = desk.folder / "log"
    log.write_text("begin\n")

    def goes_on(times: int) -> None:
        with log.open("a") as file:
            file.write(f"{times}\n")

    between(monkeypatch, goes_on)
    said = await desk.refusal("Edit", path="log", old_string="begin", new_string="end")
    assert "being written by something else all the time; nothing was changed" in said
    assert log.read_text() == "begin\n" + "".join(f"{times}\n" for times in range(1, files.EDIT_TRIES + 1))
    assert names(desk.folder) == ["log"]


async def test_nobody_waits_for_ever_for_a_turn(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beneath, "TURN_SECONDS", 0.05)
    with beneath.held(desk.place, "text"):
        assert "others are changing it" in await desk.refusal("Write", path="text", content="x")
    await desk.use("Write", path="text", content="x")
    gc.collect()
    assert len(beneath._turns) == 0, "nothing is kept of those who have gone"  # pyright: ignore[reportPrivateUsage]
