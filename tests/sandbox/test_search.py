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


TIMEOUT_SECONDS = 30.0  # for what takes no time, on a machine that may have none


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
    assert await library.glob(pattern) == {"paths": found, "truncated": False, "files_passed_over": 0}


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
        "matches": [
            {"path": "a.py", "line": 1, "text": "import os"},
            {"path": "b.txt", "line": 2, "text": "import too"},
        ],
        "truncated": False,
        "files_passed_over": 0,
    }
    assert [one["path"] for one in (await library.grep("import", glob="*.py"))["matches"]] == ["a.py"]
    assert len((await library.grep("IMPORT", ignore_case=True))["matches"]) == 2
    assert (await library.grep("PRINT", path="a.py", ignore_case=True))["matches"] == [
        {"path": "a.py", "line": 2, "text": "print(1)"}
    ]


async def test_what_is_no_text_or_too_large_is_passed_over_and_counted(library: Library) -> None:
    (library.folder / "picture").write_bytes(b"find\0me")
    (library.folder / "large").write_bytes(b"find me\n" * (search.MAX_FILE_BYTES // 8 + 1))
    library.has(note="find me")
    found = await library.grep("find")
    assert [one["path"] for one in found["matches"]] == ["note"]
    assert found["files_passed_over"] == 2


async def test_what_has_a_name_that_cannot_be_told_is_passed_over_and_counted(library: Library) -> None:
    """Bytes that are no UTF-8: in an answer they could not stand, and whatever stood for them could not be opened."""
    (library.folder / os.fsdecode(b"d\xfe")).mkdir()
    for name in (b"n\xff.txt", b"d\xfe/inner.txt", "größe.txt".encode()):
        (library.folder / os.fsdecode(name)).write_text("find me")
    assert await library.glob("**") == {"paths": ["größe.txt"], "truncated": False, "files_passed_over": 2}
    assert (await library.glob("?????.txt"))["paths"] == ["größe.txt"]
    found = await library.grep("find")
    assert ([one["path"] for one in found["matches"]], found["files_passed_over"]) == (["größe.txt"], 2)


async def test_of_a_long_line_the_place_is_shown(library: Library) -> None:
    library.has(wide="x" * 50_000 + "needle" + "y" * 50_000)
    [match] = (await library.grep("needle"))["matches"]
    assert "needle" in match["text"]
    assert len(match["text"]) < 500


async def test_answers_are_in_bounds_and_say_so(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    library.has(**{f"d{number}__file": "hit\n" * 10 for number in range(30)})
    found = await library.grep("hit", limit=25)
    assert (len(found["matches"]), found["truncated"]) == (25, True)
    monkeypatch.setattr(search, "MAX_FOUND", 10)
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


@pytest.mark.parametrize("ends", ["\n", ""], ids=["with a last line end", "without"])
@pytest.mark.parametrize("pattern, lines", WITHIN_A_LINE)
async def test_what_is_found_is_within_a_line(
    library: Library, pattern: str, lines: list[int], ends: str
) -> None:
    library.has(text="one\ntwo\n\nfour" + ends)
    assert [one["line"] for one in (await library.grep(pattern))["matches"]] == lines


@given(
    st.text(st.sampled_from("ab\n"), max_size=60),
    st.sampled_from(["a", "^a", "b$", "^$", "a*b", r"a\sb", "[^a]b", r"\bb", "ab|ba", "$"]),
    st.integers(2, 9),
)
def test_a_text_is_searched_in_pieces_as_it_would_be_line_by_line(
    text: str, pattern: str, piece: int
) -> None:
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
        patch.setattr(search, "PIECE", piece)
        patch.setattr(search, "MAX_PIECE_LENGTH", piece + 1)
        patch.setattr(search, "OVERLAP", 2)  # what these patterns need, at most
        found = search._lines(search.compiled(pattern, lines=True), text.encode(), threading.Event())  # pyright: ignore[reportPrivateUsage]
        assert [number for number, _ in found] == expected


async def test_a_long_line_is_searched_to_its_end(library: Library) -> None:
    library.has(wide="x" * 200_000 + "needle", wider="y" * 1_000_000 + "needle")
    assert [one["path"] for one in (await library.grep("x{99}needle$|y{99}needle$"))["matches"]] == [
        "wide",
        "wider",
    ]
    assert [one["path"] for one in (await library.grep("^.*needle$"))["matches"]] == ["wide"], (
        "as a whole, up to 256 KB"
    )


@rule("SB-06")
async def test_millions_of_lines_take_no_longer_than_their_bytes(library: Library) -> None:
    (library.folder / "many").write_bytes(b"a\n" * (search.MAX_FILE_BYTES // 2 - 4) + b"needle\n")
    began = time.process_time()
    [match] = (await library.grep("needle"))["matches"]
    assert match == {"path": "many", "line": search.MAX_FILE_BYTES // 2 - 3, "text": "needle"}
    assert (await library.tools["Read"].use({"path": "many", "offset": match["line"]}, None))[
        "text"
    ] == "needle\n"
    assert time.process_time() - began < 0.5, "line by line it is seconds"


def expensive(library: Library, lines: int = 1_000) -> str:
    """A text and a pattern that RE2 needs tens of seconds for."""
    chance = random.Random(1)
    (library.folder / "dear").write_bytes(
        b"".join(bytes(chance.choices(b"ab", k=2_000)) + b"\n" for _ in range(lines))
    )
    return "a.{800}q"


@rule("SB-06")
async def test_a_search_that_takes_too_long_tells_what_it_has(
    library: Library, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time is over when it has just begun with what is dear: it ends after one piece of that, and not after all of the thirty."""
    pattern = expensive(library)
    library.has(cheap="a" + "b" * 800 + "q")
    clock, real = HandClock(), search._content  # pyright: ignore[reportPrivateUsage]

    def content(place: Workspace, path: str) -> bytes | None:
        if path.endswith("dear"):
            clock.ahead += 2 * search.MAX_SECONDS
        return real(place, path)

    async def seconds_of(one: Library) -> tuple[float, Any]:
        began = time.monotonic()
        found = await one.grep(pattern)
        return time.monotonic() - began, found

    monkeypatch.setattr(search, "time", clock)
    piece = Library(tmp_path_factory.mktemp("piece"))
    expensive(piece, lines=search.PIECE // 2_001 + 1)
    for_a_piece, _ = await seconds_of(piece)  # at this moment, on this machine
    monkeypatch.setattr(search, "_content", content)
    took, found = await seconds_of(library)
    assert ([one["path"] for one in found["matches"]], found["truncated"]) == (["cheap"], True)
    assert took < 10 * for_a_piece


@rule("SB-06", "SB-02")
async def test_another_session_does_not_wait_for_the_searches_of_one(
    library: Library, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    pattern, other = expensive(library), Library(tmp_path_factory.mktemp("other"))
    other.has(note="find me")
    monkeypatch.setattr(search, "MAX_SECONDS", 600)
    hogs = [asyncio.create_task(library.grep(pattern)) for _ in range(12)]
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await asyncio.sleep(0.2)
            assert (await other.tools["Read"].use({"path": "note"}, None))["text"] == "find me"
            assert len((await other.grep("find"))["matches"]) == 1
            assert await asyncio.to_thread(lambda: "others' threads are theirs")
        assert not any(one.done() for one in hogs)
    finally:
        for one in hogs:
            one.cancel()
        began = time.monotonic()
        await asyncio.gather(*hogs, return_exceptions=True)
    assert time.monotonic() - began < TIMEOUT_SECONDS, (
        "told to stop, they stop, and not only at the end of a file"
    )


BOMBS = [r"(a+)+$", r"(a|a)*$", r"(a|aa)+$", r"(.*a){12}$", r"^(\w+\s?)*$", r"(x+x+)+y"]


@rule("SB-06")
@pytest.mark.parametrize("pattern", BOMBS)
async def test_no_pattern_hangs(library: Library, pattern: str) -> None:
    library.has(bait="a" * 20_000 + "!\n" + "x" * 20_000 + "\n")
    began = time.process_time()
    await library.grep(pattern)
    assert time.process_time() - began < 3
    assert re.compile(pattern), "Python's own matcher would take it too, and not come back"


@pytest.mark.parametrize(
    "pattern", ["(", "[a", "a{99999}", "(?P<x", "\\", "(?=ahead)", r"(a)\1", "x" * 2_000]
)
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
