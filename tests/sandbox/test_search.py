"""Glob and Grep: what they find, in what time, and within which bounds."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel.errors import ToolFailed
from easel.sandbox import search
from easel.sandbox.places import FixedRoots
from easel.sandbox.tools import machine_tools
from tests.requirements import rule

if TYPE_CHECKING:
    from pathlib import Path


class Library:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tools = {one.bare_name: one for one in machine_tools("", FixedRoots([folder]), None)}

    def has(self, **texts: str) -> None:
        for name, text in texts.items():
            path = self.folder / name.replace("__", "/").replace("_dot_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    async def glob(self, pattern: str, **args: Any) -> Any:
        return await self.tools["Glob"].use({"pattern": pattern, **args}, None)

    async def grep(self, pattern: str, **args: Any) -> Any:
        return await self.tools["Grep"].use({"pattern": pattern, **args}, None)


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path)


FITS = [
    # pattern              found
    ("*", ["a.py", "b.txt"]),
    ("*.py", ["a.py"]),
    ("**/*.py", ["a.py", "src/c.py", "src/deep/d.py"]),
    ("src/**", ["src/c.py", "src/deep/d.py"]),
    ("src/*", ["src/c.py"]),
    ("?.txt", ["b.txt"]),
    ("[ab].*", ["a.py", "b.txt"]),
    ("[!a].*", ["b.txt"]),
    ("*.{py,txt}", ["a.py", "b.txt"]),
    ("**/{c,d}.py", ["src/c.py", "src/deep/d.py"]),
    ("a.p", []),
    ("*.p+", []),
    ("../*", []),
]


@pytest.mark.parametrize("pattern, found", FITS)
async def test_a_glob_finds_files_by_their_names(library: Library, pattern: str, found: list[str]) -> None:
    library.has(a_dot_py="", b_dot_txt="", src__c_dot_py="", src__deep__d_dot_py="", _dot_git__config="")
    assert await library.glob(pattern) == {"paths": found, "truncated": False}


@given(st.text(st.sampled_from("ab*?[]!^{},/.\\-+()|$"), max_size=12))
def test_every_glob_is_understood_or_refused(pattern: str) -> None:
    with contextlib.suppress(search.Refused):
        search.compiled(search.as_expression(pattern)).fullmatch(b"a/b.a")


async def test_a_glob_begins_where_it_is_told(library: Library) -> None:
    library.has(src__c_dot_py="", other__c_dot_py="")
    assert (await library.glob("*.py", path="src"))["paths"] == ["src/c.py"]
    with pytest.raises(ToolFailed, match="there is no nowhere"):
        await library.glob("*", path="nowhere")
    with pytest.raises(ToolFailed, match="slash"):
        await library.glob("/etc/*")


async def test_lines_are_found_with_their_numbers(library: Library) -> None:
    library.has(a_dot_py="import os\nprint(1)\n", b_dot_txt="nothing\r\nimport too\r\n")
    found = await library.grep(r"^import\s")
    assert found == {
        "matches": [{"path": "a.py", "line": 1, "text": "import os"}, {"path": "b.txt", "line": 2, "text": "import too"}],
        "truncated": False,
        "files_passed_over": 0,
    }
    assert [one["path"] for one in (await library.grep("import", glob="*.py"))["matches"]] == ["a.py"]
    assert len((await library.grep("IMPORT", ignore_case=True))["matches"]) == 2
    assert (await library.grep("PRINT", path="a.py", ignore_case=True))["matches"] == [{"path": "a.py", "line": 2, "text": "print(1)"}]


async def test_what_is_no_text_or_too_large_is_passed_over_and_counted(library: Library) -> None:
    (library.folder / "picture").write_bytes(b"find\0me")
    (library.folder / "large").write_bytes(b"find me\n" * (search.LARGEST_FILE // 8 + 1))
    library.has(note="find me")
    found = await library.grep("find")
    assert [one["path"] for one in found["matches"]] == ["note"]
    assert found["files_passed_over"] == 2


async def test_of_a_long_line_the_place_is_shown(library: Library) -> None:
    library.has(wide="x" * 50_000 + "needle" + "y" * 50_000)
    [match] = (await library.grep("needle"))["matches"]
    assert "needle" in match["text"]
    assert len(match["text"]) < 500


async def test_answers_are_in_bounds_and_say_so(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    library.has(**{f"d{number}__file": "hit\n" * 10 for number in range(30)})
    found = await library.grep("hit", limit=25)
    assert (len(found["matches"]), found["truncated"]) == (25, True)
    monkeypatch.setattr(search, "MOST_FOUND", 10)
    found = await library.glob("**")
    assert (len(found["paths"]), found["truncated"]) == (10, True)
    monkeypatch.setattr(search, "MOST_VISITED", 15)
    assert (await library.glob("nothing"))["truncated"] is True
    monkeypatch.setattr(search, "MOST_READ", 50)
    assert (await library.grep("nothing"))["truncated"] is True


BOMBS = [r"(a+)+$", r"(a|a)*$", r"(a|aa)+$", r"(.*a){12}$", r"^(\w+\s?)*$", r"(x+x+)+y"]


@rule("SB-06")
@pytest.mark.parametrize("pattern", BOMBS)
async def test_no_pattern_hangs(library: Library, pattern: str) -> None:
    library.has(bait="a" * 20_000 + "!\n" + "x" * 20_000 + "\n")
    began = time.monotonic()
    await library.grep(pattern)
    assert time.monotonic() - began < 3
    assert re.compile(pattern), "Python's own matcher would take it too, and not come back"


@pytest.mark.parametrize("pattern", ["(", "[a", "a{99999}", "(?P<x", "\\", "(?=ahead)", r"(a)\1", "x" * 2_000])
async def test_a_pattern_that_cannot_be_used_is_refused(library: Library, pattern: str) -> None:
    with pytest.raises(ToolFailed, match="pattern"):
        await library.grep(pattern)


async def test_links_are_not_followed(library: Library, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret").write_text("find me")
    (library.folder / "folder").symlink_to(outside)
    (library.folder / "file").symlink_to(outside / "secret")
    (library.folder / "round").symlink_to(".")
    assert (await library.grep("find"))["matches"] == []
    assert (await library.glob("**"))["paths"] == []


async def test_a_search_may_begin_at_a_link_that_stays_inside(library: Library) -> None:
    library.has(real__deep__file="find me")
    (library.folder / "link").symlink_to("real")
    assert (await library.glob("**", path="link"))["paths"] == ["link/deep/file"]
    assert [one["path"] for one in (await library.grep("find", path="link"))["matches"]] == ["link/deep/file"]


async def test_a_search_that_is_cancelled_stops(library: Library) -> None:
    library.has(**{f"d{number}__file": "x" * 100_000 for number in range(100)})
    before = threading.active_count()
    task = asyncio.create_task(library.grep("nothing.*to.*find"))
    await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert threading.active_count() <= before + 1
