"""Read, Write and Edit stay inside the workspace as Bash does, even if other programs swap links at the same
time.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from easel import fs
from easel.errors import BadSettings, ToolFailed
from easel.fs import OutsideDirectory
from easel.sandbox import files
from easel.sandbox.tools import MachineTool, machine_tools
from easel.sandbox.workspace import FixedRoots, Root, Workspace
from tests.requirements import rule
from tests.sandbox.processes import TIMEOUT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping


class FileTools:
    """The file tools of one session folder, with a folder outside of it that they must not touch."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "workspace"
        self.folder.mkdir()
        self.outside = tmp_path / "outside"
        self.outside.mkdir()
        (self.outside / "secret").write_text("of the host")
        self.notes: list[tuple[str, Mapping[str, Any]]] = []
        self.workspace = Workspace((Root("/workspace", self.folder),), "s", temporary="/workspace/.tmp")
        self.tools: dict[str, MachineTool] = {
            tool.bare_name: tool
            for tool in machine_tools("", OneWorkspace(self.workspace), None, note=self._note)
        }

    def _note(
        self, principal: object, action: str, /, *, subject: str | None, details: Mapping[str, Any]
    ) -> None:
        self.notes.append((action, details))

    async def use(self, tool: str, **args: Any) -> Any:
        return await self.tools[tool].use(args, None)

    async def refusal(self, tool: str, **args: Any) -> str:
        with pytest.raises(ToolFailed) as failure:
            await self.use(tool, **args)
        return failure.value.message


class OneWorkspace(FixedRoots):
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace


@pytest.fixture
def file_tools(tmp_path: Path) -> FileTools:
    return FileTools(tmp_path)


@pytest.fixture(params=["openat2", "no openat2", "openat2 forbidden"])
def path_walk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Walk paths with `openat2`, and with the fallback for old kernels and for containers that forbid the
    call.
    """
    if request.param == "no openat2":
        monkeypatch.setattr(fs, "_syscall", None)
    if request.param == "openat2 forbidden":
        monkeypatch.setattr(fs, "_syscall", forbidden_syscall)
    return request.param


def forbidden_syscall(*_: object) -> int:
    ctypes.set_errno(errno.EPERM)
    return -1


# --- read, write, edit --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("path_walk")
async def test_written_file_can_be_read(file_tools: FileTools) -> None:
    assert await file_tools.use("Write", path="deep/er/note.txt", content="one\ntwö\n") == {
        "path": "deep/er/note.txt",
        "bytes": 9,
    }
    assert await file_tools.use("Read", path="/workspace/deep/er/note.txt") == {
        "path": "/workspace/deep/er/note.txt",
        "text": "one\ntwö\n",
        "first_line": 1,
        "lines": 2,
        "more": False,
    }
    await file_tools.use("Write", path="deep/er/note.txt", content="")
    assert (file_tools.folder / "deep/er/note.txt").read_bytes() == b""
    assert [path.name for path in (file_tools.folder / "deep/er").iterdir()] == ["note.txt"]


async def test_path_under_tmp_is_the_tmp_of_commands(file_tools: FileTools) -> None:
    await file_tools.use("Write", path="/tmp/note", content="x")
    assert (file_tools.folder / ".tmp" / "note").read_text() == "x"
    assert (await file_tools.use("Read", path="/tmp/note"))["text"] == "x"


async def test_range_of_lines_can_be_read(file_tools: FileTools) -> None:
    (file_tools.folder / "long").write_text("".join(f"{number}\n" for number in range(1, 5_001)))
    read = await file_tools.use("Read", path="long", offset=4_000, limit=2)
    assert (read["text"], read["first_line"], read["lines"], read["more"]) == ("4000\n4001\n", 4_000, 2, True)
    assert (await file_tools.use("Read", path="long"))["lines"] == files.MAX_LINES
    assert (await file_tools.use("Read", path="long", offset=5_000))["more"] is False
    assert (await file_tools.use("Read", path="long", offset=9_000))["text"] == ""


async def test_long_lines_are_cut_and_results_are_limited(file_tools: FileTools) -> None:
    (file_tools.folder / "wide").write_text("x" * 100_000 + "\nnext\n")
    read = await file_tools.use("Read", path="wide")
    assert read["text"] == "x" * 2_000 + "… [98001 bytes left out]\nnext\n"
    (file_tools.folder / "much").write_text(("y" * 1_999 + "\n") * 500)
    read = await file_tools.use("Read", path="much")
    assert read["more"] is True
    assert len(read["text"]) <= files.MAX_TEXT_LENGTH
    assert read["lines"] == 50


async def test_last_line_without_line_end_is_read(file_tools: FileTools) -> None:
    (file_tools.folder / "file").write_bytes(b"a\nb")
    assert (await file_tools.use("Read", path="file"))["text"] == "a\nb"


async def test_binary_file_is_refused_and_invalid_utf8_is_replaced(file_tools: FileTools) -> None:
    (file_tools.folder / "picture").write_bytes(b"\x89PNG\0\0")
    assert "is not a text file" in await file_tools.refusal("Read", path="picture")
    (file_tools.folder / "latin").write_bytes(b"caf\xe9\n")
    assert (await file_tools.use("Read", path="latin"))["text"] == "caf�\n"


async def test_edit_replaces_text_that_occurs_exactly_once(file_tools: FileTools) -> None:
    (file_tools.folder / "code.py").write_bytes(b"a = 1\r\nb = \xff\r\n")
    assert await file_tools.use("Edit", path="code.py", old_string="a = 1", new_string="a = 2") == {
        "path": "code.py",
        "replacements": 1,
    }
    assert (file_tools.folder / "code.py").read_bytes() == b"a = 2\r\nb = \xff\r\n", (
        "all other bytes are unchanged"
    )
    assert "is not in code.py" in await file_tools.refusal(
        "Edit", path="code.py", old_string="a = 1", new_string="x"
    )
    assert "2 times" in await file_tools.refusal("Edit", path="code.py", old_string=" = ", new_string="x")
    assert (await file_tools.use("Edit", path="code.py", old_string=" = ", new_string="=", replace_all=True))[
        "replacements"
    ] == 2
    assert "must differ" in await file_tools.refusal("Edit", path="code.py", old_string="a", new_string="a")


async def test_overlapping_occurrences_count_as_more_than_one(file_tools: FileTools) -> None:
    (file_tools.folder / "a").write_text("aaa")
    assert "more than once" in await file_tools.refusal("Edit", path="a", old_string="aa", new_string="b")
    assert (file_tools.folder / "a").read_text() == "aaa"
    assert (await file_tools.use("Edit", path="a", old_string="aa", new_string="b", replace_all=True))[
        "replacements"
    ] == 1
    assert (file_tools.folder / "a").read_text() == "ba"


async def test_edited_file_keeps_its_permissions(file_tools: FileTools) -> None:
    script = file_tools.folder / "run.sh"
    script.write_text("echo one")
    script.chmod(0o750)
    await file_tools.use("Edit", path="run.sh", old_string="one", new_string="two")
    assert script.stat().st_mode & 0o777 == 0o750


async def test_node_running_as_root_keeps_the_owner_of_a_file(
    file_tools: FileTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, chowned = file_tools.folder / "text", list[tuple[int, int]]()
    text.write_text("one")
    found = text.stat()

    def fchown(_: int, uid: int, gid: int) -> None:
        chowned.append((uid, gid))

    monkeypatch.setattr(os, "fchown", fchown)
    await file_tools.use("Edit", path="text", old_string="one", new_string="two")
    assert chowned == [], "the file belongs to this user"
    monkeypatch.setattr(os, "geteuid", lambda: found.st_uid + 1)
    await file_tools.use("Edit", path="text", old_string="two", new_string="three")
    await file_tools.use("Write", path="new", content="new")
    assert chowned == [(found.st_uid, found.st_gid)]


async def test_failed_write_leaves_the_file_unchanged(
    file_tools: FileTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file_tools.folder / "file").write_text("old")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    assert "the disk is full" in await file_tools.refusal("Write", path="file", content="new")
    assert [(path.name, path.read_text()) for path in file_tools.folder.iterdir()] == [("file", "old")]


REFUSALS = [
    # tool    path            message
    ("Read", "nothing", "nothing does not exist"),
    ("Read", "folder", "is a folder"),
    ("Read", "file/x", "not a folder"),
    ("Read", "pipe", "regular file"),
    ("Read", "loop", "link"),
    ("Write", "folder", "is a folder"),
    ("Write", ".", "is a folder"),
    ("Write", "pipe", "regular file"),
    ("Write", "file/x", "not a folder"),
    ("Write", "inside", "regular file"),
    ("Write", "x" * 300, "too long"),
    ("Read", "half \ud800", "lone surrogate"),
]


@pytest.mark.parametrize("tool, path, message", REFUSALS)
async def test_failed_call_names_the_reason(
    file_tools: FileTools, tool: str, path: str, message: str
) -> None:
    (file_tools.folder / "folder").mkdir()
    (file_tools.folder / "file").write_text("")
    (file_tools.folder / "inside").symlink_to("file")
    (file_tools.folder / "loop").symlink_to("loop")
    os.mkfifo(file_tools.folder / "pipe")
    args = {"content": "x"} if tool == "Write" else {}
    async with asyncio.timeout(TIMEOUT_SECONDS):
        assert message.lower() in (await file_tools.refusal(tool, path=path, **args)).lower()
    assert file_tools.notes == [], "none of these is a violation"


# --- the boundary -------------------------------------------------------------------------------------------

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
@pytest.mark.usefixtures("path_walk")
@pytest.mark.parametrize("tool", ["Read", "Write", "Edit", "Glob", "Grep"])
@pytest.mark.parametrize("path", ESCAPES, ids=repr)
async def test_no_path_leads_out_of_the_workspace(file_tools: FileTools, tool: str, path: str) -> None:
    (file_tools.folder / "link").symlink_to(file_tools.outside / "secret")
    (file_tools.folder / "folder").symlink_to(file_tools.outside)
    (file_tools.folder / "up").symlink_to("..")
    (file_tools.folder / "magic").symlink_to("/proc/self/root")
    args = {
        "Read": {},
        "Write": {"content": "changed"},
        "Edit": {"old_string": "host", "new_string": "changed"},
        "Glob": {"pattern": "**"},
        "Grep": {"pattern": "host"},
    }[tool]
    try:
        answer = await file_tools.use(tool, path=path, **args)
    except ToolFailed as failure:
        answer = failure.message
    assert "of the host" not in str(answer)
    assert "root:" not in str(answer)
    assert (file_tools.outside / "secret").read_text() == "of the host"
    assert sorted(path.name for path in file_tools.outside.iterdir()) == ["secret"]


@rule("SB-17", "SB-19")
@pytest.mark.parametrize("path", ["../outside/secret", "/etc/passwd", "link", "folder/secret"])
async def test_path_outside_the_workspace_is_recorded_as_violation(file_tools: FileTools, path: str) -> None:
    (file_tools.folder / "link").symlink_to(file_tools.outside / "secret")
    (file_tools.folder / "folder").symlink_to(file_tools.outside)
    assert "outside of /workspace" in await file_tools.refusal("Read", path=path)
    [(action, details)] = file_tools.notes
    assert action == "sandbox.violation"
    assert {"kind": "path", "path": path, "tool": "Read"}.items() <= details.items()


@rule("SB-19")
async def test_link_inside_the_workspace_is_followed(file_tools: FileTools) -> None:
    (file_tools.folder / "real").mkdir()
    (file_tools.folder / "real" / "file").write_text("inside")
    (file_tools.folder / "link").symlink_to("real")
    (file_tools.folder / "real" / "back").symlink_to("../real/file")
    assert (await file_tools.use("Read", path="link/file"))["text"] == "inside"
    assert (await file_tools.use("Read", path="link/back"))["text"] == "inside"
    await file_tools.use("Write", path="link/new", content="x")
    assert (file_tools.folder / "real" / "new").exists()


MAX_SWAPPED_READS = 50_000


@rule("SB-19", "SB-04")
@pytest.mark.usefixtures("path_walk")
async def test_folder_swapped_with_a_link_does_not_lead_out(file_tools: FileTools) -> None:
    """The path is a folder when it is checked and a link when it is opened."""
    inner, link = file_tools.folder / "inner", file_tools.folder / "link"
    inner.mkdir()
    (inner / "secret").write_text("of the session")
    link.symlink_to(file_tools.outside)
    stop, exchange = threading.Event(), ctypes.CDLL(None).renameat2

    def swap() -> None:
        """Exchange them atomically, so that the name always exists."""
        while not stop.is_set():
            assert exchange(-100, bytes(inner), -100, bytes(link), 2) == 0

    swapping = threading.Thread(target=swap)
    swapping.start()
    seen: set[str] = set()
    try:
        for number in range(MAX_SWAPPED_READS):
            if number >= 1_500 and len(seen) == 2:
                break  # a busy machine may need longer to meet both
            try:
                seen.add(read_or_empty(file_tools, "inner/secret"))
                if number % 5 == 0:
                    await file_tools.use("Write", path="inner/made", content="x")
                    await file_tools.use("Grep", pattern="of the host", path="inner")
            except ToolFailed:
                continue
    finally:
        stop.set()
        swapping.join()
    assert seen == {"of the session", ""}, "both the folder and the link were met"
    assert sorted(path.name for path in file_tools.outside.iterdir()) == ["secret"]
    assert (file_tools.outside / "secret").read_text() == "of the host"


def read_or_empty(file_tools: FileTools, path: str) -> str:
    workspace = Workspace((Root("/workspace", file_tools.folder),), "s")
    try:
        return files.read(workspace, {"path": path})["text"]
    except (OSError, OutsideDirectory):
        return ""


# --- a node's roots -----------------------------------------------------------------------------------------


async def test_node_sees_its_roots_under_their_own_paths(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    tools = {tool.bare_name: tool for tool in machine_tools("", FixedRoots([first, second]), None)}
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
def test_unsuitable_root_is_refused(root: str) -> None:
    with pytest.raises(BadSettings, match="root"):
        FixedRoots([Path(root)])
