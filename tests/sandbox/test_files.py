"""Read, Write and Edit, held to the same boundary as Bash: nothing leads out of the place, whoever swaps what meanwhile."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from easel.errors import BadSettings, ToolFailed
from easel.sandbox import files
from easel.sandbox import safe_open as beneath
from easel.sandbox.tools import MachineTool, machine_tools
from easel.sandbox.workspace import FixedRoots, Root, Workspace
from tests.requirements import rule
from tests.sandbox.processes import TIMEOUT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping


class Desk:
    """The file tools over one folder, as a session has them, beside things that they must not touch."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "place"
        self.folder.mkdir()
        self.outside = tmp_path / "outside"
        self.outside.mkdir()
        (self.outside / "secret").write_text("of the host")
        self.notes: list[tuple[str, Mapping[str, Any]]] = []
        self.place = Workspace((Root("/workspace", self.folder),), "s", temporary="/workspace/.tmp")
        self.tools: dict[str, MachineTool] = {
            one.bare_name: one for one in machine_tools("", Fixed(self.place), None, note=self._note)
        }

    def _note(
        self, principal: object, action: str, /, *, subject: str | None, details: Mapping[str, Any]
    ) -> None:
        self.notes.append((action, details))

    async def use(self, tool: str, **args: Any) -> Any:
        return await self.tools[tool].use(args, None)

    async def refusal(self, tool: str, **args: Any) -> str:
        with pytest.raises(ToolFailed) as refused:
            await self.use(tool, **args)
        return refused.value.message


class Fixed(FixedRoots):
    def __init__(self, place: Workspace) -> None:
        self._place = place


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture(params=["by the kernel", "step by step", "refused by the kernel"])
def walking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to walk a path: an old kernel has only ours, and so has a container that does not let the new call through."""
    if request.param == "step by step":
        monkeypatch.setattr(beneath, "_syscall", None)
    if request.param == "refused by the kernel":
        monkeypatch.setattr(beneath, "_syscall", refused)
    return request.param


def refused(*_: object) -> int:
    ctypes.set_errno(errno.EPERM)
    return -1


# --- what they do -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("walking")
async def test_what_is_written_can_be_read(desk: Desk) -> None:
    assert await desk.use("Write", path="deep/er/note.txt", content="one\ntwö\n") == {
        "path": "deep/er/note.txt",
        "bytes": 9,
    }
    assert await desk.use("Read", path="/workspace/deep/er/note.txt") == {
        "path": "/workspace/deep/er/note.txt",
        "text": "one\ntwö\n",
        "first_line": 1,
        "lines": 2,
        "more": False,
    }
    await desk.use("Write", path="deep/er/note.txt", content="")
    assert (desk.folder / "deep/er/note.txt").read_bytes() == b""
    assert [one.name for one in (desk.folder / "deep/er").iterdir()] == ["note.txt"]


async def test_what_commands_call_tmp_is_found_there(desk: Desk) -> None:
    await desk.use("Write", path="/tmp/note", content="x")
    assert (desk.folder / ".tmp" / "note").read_text() == "x"
    assert (await desk.use("Read", path="/tmp/note"))["text"] == "x"


async def test_some_lines_of_a_file_can_be_read(desk: Desk) -> None:
    (desk.folder / "long").write_text("".join(f"{number}\n" for number in range(1, 5_001)))
    read = await desk.use("Read", path="long", offset=4_000, limit=2)
    assert (read["text"], read["first_line"], read["lines"], read["more"]) == ("4000\n4001\n", 4_000, 2, True)
    assert (await desk.use("Read", path="long"))["lines"] == files.MAX_LINES
    assert (await desk.use("Read", path="long", offset=5_000))["more"] is False
    assert (await desk.use("Read", path="long", offset=9_000))["text"] == ""


async def test_long_lines_are_cut_and_answers_are_in_bounds(desk: Desk) -> None:
    (desk.folder / "wide").write_text("x" * 100_000 + "\nnext\n")
    read = await desk.use("Read", path="wide")
    assert read["text"] == "x" * 2_000 + "… [98001 bytes left out]\nnext\n"
    (desk.folder / "much").write_text(("y" * 1_999 + "\n") * 500)
    read = await desk.use("Read", path="much")
    assert read["more"] is True
    assert len(read["text"]) <= files.MAX_TEXT_BYTES
    assert read["lines"] == 50


async def test_a_file_without_an_end_of_line_is_read_to_its_end(desk: Desk) -> None:
    (desk.folder / "file").write_bytes(b"a\nb")
    assert (await desk.use("Read", path="file"))["text"] == "a\nb"


async def test_what_is_no_text_is_refused_and_strange_bytes_are_replaced(desk: Desk) -> None:
    (desk.folder / "picture").write_bytes(b"\x89PNG\0\0")
    assert "is no text" in await desk.refusal("Read", path="picture")
    (desk.folder / "latin").write_bytes(b"caf\xe9\n")
    assert (await desk.use("Read", path="latin"))["text"] == "caf�\n"


async def test_an_edit_replaces_what_is_there_exactly_once(desk: Desk) -> None:
    (desk.folder / "code.py").write_bytes(b"a = 1\r\nb = \xff\r\n")
    assert await desk.use("Edit", path="code.py", old_string="a = 1", new_string="a = 2") == {
        "path": "code.py",
        "replacements": 1,
    }
    assert (desk.folder / "code.py").read_bytes() == b"a = 2\r\nb = \xff\r\n", "every other byte is as it was"
    assert "is not in code.py" in await desk.refusal(
        "Edit", path="code.py", old_string="a = 1", new_string="x"
    )
    assert "2 times" in await desk.refusal("Edit", path="code.py", old_string=" = ", new_string="x")
    assert (await desk.use("Edit", path="code.py", old_string=" = ", new_string="=", replace_all=True))[
        "replacements"
    ] == 2
    assert "same" in await desk.refusal("Edit", path="code.py", old_string="a", new_string="a")


async def test_what_overlaps_itself_is_there_more_than_once(desk: Desk) -> None:
    (desk.folder / "a").write_text("aaa")
    assert "more than once" in await desk.refusal("Edit", path="a", old_string="aa", new_string="b")
    assert (desk.folder / "a").read_text() == "aaa"
    assert (await desk.use("Edit", path="a", old_string="aa", new_string="b", replace_all=True))[
        "replacements"
    ] == 1
    assert (desk.folder / "a").read_text() == "ba"


async def test_a_file_keeps_its_permissions(desk: Desk) -> None:
    script = desk.folder / "run.sh"
    script.write_text("echo one")
    script.chmod(0o750)
    await desk.use("Edit", path="run.sh", old_string="one", new_string="two")
    assert script.stat().st_mode & 0o777 == 0o750


async def test_a_node_that_is_root_leaves_a_file_to_whom_it_belongs(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, given = desk.folder / "text", list[tuple[int, int]]()
    text.write_text("one")
    found = text.stat()
    monkeypatch.setattr(os, "fchown", lambda _, *whom: given.append(whom))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    await desk.use("Edit", path="text", old_string="one", new_string="two")
    assert given == [], "it is ours"
    monkeypatch.setattr(os, "geteuid", lambda: found.st_uid + 1)
    await desk.use("Edit", path="text", old_string="two", new_string="three")
    await desk.use("Write", path="new", content="of whoever makes it")
    assert given == [(found.st_uid, found.st_gid)]


async def test_a_write_that_fails_leaves_what_was_there(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    (desk.folder / "file").write_text("old")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    assert "the disk is full" in await desk.refusal("Write", path="file", content="new")
    assert [(one.name, one.read_text()) for one in desk.folder.iterdir()] == [("file", "old")]


REFUSALS = [
    # tool    path            says
    ("Read", "nothing", "there is no nothing"),
    ("Read", "folder", "is a folder"),
    ("Read", "file/x", "no folder"),
    ("Read", "pipe", "no file"),
    ("Read", "loop", "link"),
    ("Write", "folder", "is a folder"),
    ("Write", ".", "is a folder"),
    ("Write", "pipe", "no file"),
    ("Write", "file/x", "no folder"),
    ("Write", "inside", "no file"),
    ("Write", "x" * 300, "too long"),
    ("Read", "half \ud800", "half of a character"),
]


@pytest.mark.parametrize("tool, path, says", REFUSALS)
async def test_what_cannot_be_done_is_said_plainly(desk: Desk, tool: str, path: str, says: str) -> None:
    (desk.folder / "folder").mkdir()
    (desk.folder / "file").write_text("")
    (desk.folder / "inside").symlink_to("file")
    (desk.folder / "loop").symlink_to("loop")
    os.mkfifo(desk.folder / "pipe")
    args = {"content": "x"} if tool == "Write" else {}
    async with asyncio.timeout(TIMEOUT_SECONDS):
        assert says.lower() in (await desk.refusal(tool, path=path, **args)).lower()
    assert desk.notes == [], "none of these is an attempt to get out"


# --- the boundary -----------------------------------------------------------------------------------------------------

ESCAPES = [
    "../outside/secret",
    "a/../../outside/secret",
    "/etc/passwd",
    "/workspace/../../etc/passwd",
    "/workspacex/file",
    "link",
    "folder/secret",
    "folder/../outside/secret",
    "up/outside/secret",
    "/proc/self/root/etc/passwd",
    "magic/etc/passwd",
    "a\0b",
    "",
]


@rule("SB-19", "SB-04")
@pytest.mark.usefixtures("walking")
@pytest.mark.parametrize("tool", ["Read", "Write", "Edit", "Glob", "Grep"])
@pytest.mark.parametrize("path", ESCAPES, ids=repr)
async def test_no_path_leads_out(desk: Desk, tool: str, path: str) -> None:
    (desk.folder / "link").symlink_to(desk.outside / "secret")
    (desk.folder / "folder").symlink_to(desk.outside)
    (desk.folder / "up").symlink_to("..")
    (desk.folder / "magic").symlink_to("/proc/self/root")
    args = {
        "Read": {},
        "Write": {"content": "changed"},
        "Edit": {"old_string": "host", "new_string": "changed"},
        "Glob": {"pattern": "**"},
        "Grep": {"pattern": "host"},
    }[tool]
    try:
        answer = await desk.use(tool, path=path, **args)
    except ToolFailed as refused:
        answer = refused.message
    assert "of the host" not in str(answer)
    assert "root:" not in str(answer)
    assert (desk.outside / "secret").read_text() == "of the host"
    assert sorted(one.name for one in desk.outside.iterdir()) == ["secret"]


@rule("SB-17", "SB-19")
@pytest.mark.parametrize("path", ["../outside/secret", "/etc/passwd", "link", "folder/secret"])
async def test_an_attempt_to_get_out_is_recorded_as_what_it_is(desk: Desk, path: str) -> None:
    (desk.folder / "link").symlink_to(desk.outside / "secret")
    (desk.folder / "folder").symlink_to(desk.outside)
    assert "outside of /workspace" in await desk.refusal("Read", path=path)
    [(action, details)] = desk.notes
    assert action == "sandbox.violation"
    assert {"kind": "path", "path": path, "tool": "Read"}.items() <= details.items()


@rule("SB-19")
async def test_links_that_stay_inside_are_followed(desk: Desk) -> None:
    (desk.folder / "real").mkdir()
    (desk.folder / "real" / "file").write_text("inside")
    (desk.folder / "link").symlink_to("real")
    (desk.folder / "real" / "back").symlink_to("../real/file")
    assert (await desk.use("Read", path="link/file"))["text"] == "inside"
    assert (await desk.use("Read", path="link/back"))["text"] == "inside"
    await desk.use("Write", path="link/new", content="x")
    assert (desk.folder / "real" / "new").exists()


@rule("SB-19", "SB-04")
@pytest.mark.usefixtures("walking")
async def test_a_link_that_is_swapped_in_all_the_time_leads_nobody_out(desk: Desk) -> None:
    """The classic race: a folder when it is looked at, a link when it is opened."""
    inner, link = desk.folder / "inner", desk.folder / "link"
    inner.mkdir()
    (inner / "secret").write_text("of the session")
    link.symlink_to(desk.outside)
    stop, exchange = threading.Event(), ctypes.CDLL(None).renameat2

    def swap() -> None:
        """In one step of the kernel's, so that at every moment one of the two is there."""
        while not stop.is_set():
            assert exchange(-100, bytes(inner), -100, bytes(link), 2) == 0

    swapping = threading.Thread(target=swap)
    swapping.start()
    seen: set[str] = set()
    try:
        for number in range(1_500):
            try:
                seen.add(beneath_text(desk, "inner/secret"))
                if number % 5 == 0:
                    await desk.use("Write", path="inner/made", content="x")
                    await desk.use("Grep", pattern="of the host", path="inner")
            except ToolFailed:
                continue
    finally:
        stop.set()
        swapping.join()
    assert seen == {"of the session", ""}, "both were met"
    assert sorted(one.name for one in desk.outside.iterdir()) == ["secret"]
    assert (desk.outside / "secret").read_text() == "of the host"


def beneath_text(desk: Desk, path: str) -> str:
    place = Workspace((Root("/workspace", desk.folder),), "s")
    try:
        return files.read(place, {"path": path})["text"]
    except (OSError, beneath.Outside):
        return ""


# --- a node's roots ---------------------------------------------------------------------------------------------------


async def test_a_node_has_its_roots_under_their_own_names(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    tools = {one.bare_name: one for one in machine_tools("", FixedRoots([first, second]), None)}
    assert "Bash" not in tools
    await tools["Write"].use({"path": str(second / "note"), "content": "two"}, None)
    await tools["Write"].use({"path": "note", "content": "one"}, None)
    assert (first / "note").read_text() == "one"
    assert (second / "note").read_text() == "two"
    with pytest.raises(ToolFailed, match="outside"):
        await tools["Read"].use({"path": str(tmp_path / "other")}, None)
    found = await tools["Glob"].use({"pattern": "*", "path": str(second)}, None)
    assert found["paths"] == [str(second / "note")]


@pytest.mark.parametrize("root", ["/", "/proc", "/proc/self", "/dev", "nowhere"])
def test_what_cannot_be_a_root_is_refused(root: str) -> None:
    with pytest.raises(BadSettings, match="root"):
        FixedRoots([Path(root)])
