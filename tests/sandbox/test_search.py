"""Glob and Grep: what they find, in what time, and within which bounds."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel.errors import ToolFailed
from easel.sandbox import search
from easel.sandbox.tools import machine_tools
from easel.sandbox.workspace import FixedRoots
from tests.host.runs.workers import HandClock
from tests.requirements import rule

if TYPE_CHECKING:
    from pathlib import Path

    from easel.sandbox.workspace import Workspace


TIMEOUT_SECONDS = 30.0  # for work that is fast on an idle machine


class Library:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tools = {tool.bare_name: tool for tool in machine_tools("", FixedRoots([folder]), None)}

    def add(self, **texts: str) -> None:
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


GLOBS = [
    # pattern              paths
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


@pytest.mark.parametrize("pattern, paths", GLOBS)
async def test_glob_finds_files_by_name(library: Library, pattern: str, paths: list[str]) -> None:
    library.add(a_dot_py="", b_dot_txt="", src__c_dot_py="", src__deep__d_dot_py="", _dot_git__config="")
    assert await library.glob(pattern) == {"paths": paths, "truncated": False, "files_skipped": 0}


@given(st.text(st.sampled_from("ab*?[]!^{},/.\\-+()|$"), max_size=12))
def test_every_glob_is_valid_or_refused(pattern: str) -> None:
    with contextlib.suppress(search.FileToolError):
        search.compile_pattern(search.glob_to_regex(pattern)).fullmatch(b"a/b.a")


async def test_glob_is_relative_to_its_path(library: Library) -> None:
    library.add(src__c_dot_py="", other__c_dot_py="")
    assert (await library.glob("*.py", path="src"))["paths"] == ["src/c.py"]
    with pytest.raises(ToolFailed, match="nowhere does not exist"):
        await library.glob("*", path="nowhere")
    with pytest.raises(ToolFailed, match="slash"):
        await library.glob("/etc/*")


async def test_grep_returns_lines_with_their_numbers(library: Library) -> None:
    library.add(a_dot_py="import os\nprint(1)\n", b_dot_txt="nothing\r\nimport too\r\n")
    found = await library.grep(r"^import\s")
    assert found == {
        "matches": [
            {"path": "a.py", "line": 1, "text": "import os"},
            {"path": "b.txt", "line": 2, "text": "import too"},
        ],
        "truncated": False,
        "files_skipped": 0,
    }
    assert [match["path"] for match in (await library.grep("import", glob="*.py"))["matches"]] == ["a.py"]
    assert len((await library.grep("IMPORT", ignore_case=True))["matches"]) == 2
    assert (await library.grep("PRINT", path="a.py", ignore_case=True))["matches"] == [
        {"path": "a.py", "line": 2, "text": "print(1)"}
    ]


async def test_binary_and_large_files_are_skipped_and_counted(library: Library) -> None:
    (library.folder / "picture").write_bytes(b"find\0me")
    (library.folder / "large").write_bytes(b"find me\n" * (search.MAX_FILE_BYTES // 8 + 1))
    library.add(note="find me")
    found = await library.grep("find")
    assert [match["path"] for match in found["matches"]] == ["note"]
    assert found["files_skipped"] == 2


async def test_names_that_are_not_utf8_are_skipped_and_counted(library: Library) -> None:
    """Such a name cannot be part of a JSON result, and a replacement for it could not be opened."""
    (library.folder / os.fsdecode(b"d\xfe")).mkdir()
    for name in (b"n\xff.txt", b"d\xfe/inner.txt", "größe.txt".encode()):
        (library.folder / os.fsdecode(name)).write_text("find me")
    assert await library.glob("**") == {"paths": ["größe.txt"], "truncated": False, "files_skipped": 2}
    assert (await library.glob("?????.txt"))["paths"] == ["größe.txt"]
    found = await library.grep("find")
    assert ([match["path"] for match in found["matches"]], found["files_skipped"]) == (["größe.txt"], 2)


async def test_long_line_is_shown_around_the_match(library: Library) -> None:
    library.add(wide="x" * 50_000 + "needle" + "y" * 50_000)
    [match] = (await library.grep("needle"))["matches"]
    assert "needle" in match["text"]
    assert len(match["text"]) < 500


async def test_results_over_a_limit_are_truncated(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    library.add(**{f"d{number}__file": "hit\n" * 10 for number in range(30)})
    found = await library.grep("hit", limit=25)
    assert (len(found["matches"]), found["truncated"]) == (25, True)
    monkeypatch.setattr(search, "MAX_RESULTS", 10)
    found = await library.glob("**")
    assert (len(found["paths"]), found["truncated"]) == (10, True)
    monkeypatch.setattr(search, "MAX_VISITED", 15)
    assert (await library.glob("nothing"))["truncated"] is True
    monkeypatch.setattr(search, "MAX_READ_BYTES", 50)
    assert (await library.grep("nothing"))["truncated"] is True


WITHIN_A_LINE = [
    # pattern          lines of the text below
    (r"^two", [2]),
    (r"one$", [1]),
    (r"one\stwo", []),
    (r"one[^x]two", []),
    (r"(?s)one.two", []),
    ("one\\ntwo", []),
    (r"^$", [3]),
    (r"$", [1, 2, 3, 4]),
    (r"\bfour\b|o", [1, 2, 4]),
]


@pytest.mark.parametrize("ends", ["\n", ""], ids=["with last line end", "without last line end"])
@pytest.mark.parametrize("pattern, lines", WITHIN_A_LINE)
async def test_match_stays_within_a_line(library: Library, pattern: str, lines: list[int], ends: str) -> None:
    library.add(text="one\ntwo\n\nfour" + ends)
    assert [match["line"] for match in (await library.grep(pattern))["matches"]] == lines


@given(
    st.text(st.sampled_from("ab\n"), max_size=60),
    st.sampled_from(["a", "^a", "b$", "^$", "a*b", r"a\sb", "[^a]b", r"\bb", "ab|ba", "$"]),
    st.integers(2, 9),
)
def test_search_in_blocks_equals_search_line_by_line(text: str, pattern: str, block_bytes: int) -> None:
    expected = (
        [
            number
            for number, line in enumerate(text.removesuffix("\n").split("\n"), 1)
            if re.search(pattern, line)
        ]
        if text
        else []
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "BLOCK_BYTES", block_bytes)
        patch.setattr(search, "MAX_BLOCK_BYTES", block_bytes + 1)
        patch.setattr(search, "OVERLAP_BYTES", 2)  # the longest match of these patterns
        found = search._matching_lines(
            search.compile_pattern(pattern, lines=True), text.encode(), lambda: False
        )  # pyright: ignore[reportPrivateUsage]
        assert [number for number, _ in found] == expected


async def test_long_line_is_searched_to_its_end(library: Library) -> None:
    library.add(wide="x" * 200_000 + "needle", wider="y" * 1_000_000 + "needle")
    assert [match["path"] for match in (await library.grep("x{99}needle$|y{99}needle$"))["matches"]] == [
        "wide",
        "wider",
    ]
    assert [match["path"] for match in (await library.grep("^.*needle$"))["matches"]] == ["wide"], (
        "in one block, up to 256 KB"
    )


@rule("SB-06")
async def test_millions_of_short_lines_are_searched_fast(library: Library) -> None:
    (library.folder / "many").write_bytes(b"a\n" * (search.MAX_FILE_BYTES // 2 - 4) + b"needle\n")
    started_at = time.process_time()
    [match] = (await library.grep("needle"))["matches"]
    assert match == {"path": "many", "line": search.MAX_FILE_BYTES // 2 - 3, "text": "needle"}
    assert (await library.tools["Read"].use({"path": "many", "offset": match["line"]}, None))[
        "text"
    ] == "needle\n"
    assert time.process_time() - started_at < 0.5, "line by line it takes seconds"


def add_slow_search(library: Library, lines: int = 1_000) -> str:
    """Add a file and return a pattern that RE2 needs tens of seconds for."""
    rng, letters = random.Random(1), b"ab" * 128
    (library.folder / "slow").write_bytes(
        b"".join(rng.randbytes(2_000).translate(letters) + b"\n" for _ in range(lines))
    )
    return "a.{800}q"


@rule("SB-06")
async def test_search_over_its_time_limit_returns_its_results(
    library: Library, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time limit is reached at the start of the slow file: the search ends after one of its thirty
    blocks.
    """
    pattern = add_slow_search(library)
    library.add(fast="a" + "b" * 800 + "q")
    clock, real = HandClock(), search._read_text  # pyright: ignore[reportPrivateUsage]

    def read_text(workspace: Workspace, path: str) -> bytes | None:
        if path.endswith("slow"):
            clock.ahead += 2 * search.MAX_SECONDS
        return real(workspace, path)

    async def timed_grep(library: Library) -> tuple[float, Any]:
        started_at = time.monotonic()
        found = await library.grep(pattern)
        return time.monotonic() - started_at, found

    monkeypatch.setattr(search, "time", clock)
    one_block = Library(tmp_path_factory.mktemp("one_block"))
    add_slow_search(one_block, lines=search.BLOCK_BYTES // 2_001 + 1)
    block_seconds, _ = await timed_grep(one_block)  # at this moment, on this machine
    monkeypatch.setattr(search, "_read_text", read_text)
    seconds, found = await timed_grep(library)
    assert ([match["path"] for match in found["matches"]], found["truncated"]) == (["fast"], True)
    assert seconds < 10 * block_seconds


@rule("SB-06", "SB-02")
async def test_searches_of_one_session_do_not_delay_another(
    library: Library, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    pattern, other = add_slow_search(library), Library(tmp_path_factory.mktemp("other"))
    other.add(note="find me")
    monkeypatch.setattr(search, "MAX_SECONDS", 600)
    hogs = [asyncio.create_task(library.grep(pattern)) for _ in range(12)]
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await asyncio.sleep(0.2)
            assert (await other.tools["Read"].use({"path": "note"}, None))["text"] == "find me"
            assert len((await other.grep("find"))["matches"]) == 1
            assert await asyncio.to_thread(lambda: "the default thread pool is free")
        assert not any(hog.done() for hog in hogs)
    finally:
        for hog in hogs:
            hog.cancel()
        started_at = time.monotonic()
        await asyncio.gather(*hogs, return_exceptions=True)
    assert time.monotonic() - started_at < TIMEOUT_SECONDS, "a cancelled search stops within a file"


BOMBS = [r"(a+)+$", r"(a|a)*$", r"(a|aa)+$", r"(.*a){12}$", r"^(\w+\s?)*$", r"(x+x+)+y"]


@rule("SB-06")
@pytest.mark.parametrize("pattern", BOMBS)
async def test_catastrophic_pattern_does_not_hang(library: Library, pattern: str) -> None:
    library.add(bait="a" * 20_000 + "!\n" + "x" * 20_000 + "\n")
    started_at = time.process_time()
    await library.grep(pattern)
    assert time.process_time() - started_at < 3
    assert re.compile(pattern), "Python's own matcher accepts it, and would not end"


@pytest.mark.parametrize(
    "pattern", ["(", "[a", "a{99999}", "(?P<x", "\\", "(?=ahead)", r"(a)\1", "x" * 2_000]
)
async def test_invalid_pattern_is_refused(library: Library, pattern: str) -> None:
    with pytest.raises(ToolFailed, match="pattern"):
        await library.grep(pattern)


async def test_search_does_not_follow_links(
    library: Library, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret").write_text("find me")
    (library.folder / "folder").symlink_to(outside)
    (library.folder / "file").symlink_to(outside / "secret")
    (library.folder / "round").symlink_to(".")
    assert (await library.grep("find"))["matches"] == []
    assert (await library.glob("**"))["paths"] == []


async def test_search_may_start_at_a_link_inside_the_workspace(library: Library) -> None:
    library.add(real__deep__file="find me")
    (library.folder / "link").symlink_to("real")
    assert (await library.glob("**", path="link"))["paths"] == ["link/deep/file"]
    assert [match["path"] for match in (await library.grep("find", path="link"))["matches"]] == [
        "link/deep/file"
    ]


async def test_cancelled_search_stops(library: Library) -> None:
    library.add(**{f"d{number}__file": "x" * 100_000 for number in range(100)})
    before = threading.active_count()
    task = asyncio.create_task(library.grep("nothing.*to.*find"))
    await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert threading.active_count() <= before + 1
